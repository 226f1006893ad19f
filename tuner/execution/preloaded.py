"""Imported in the processes that Ray starts ahead of trials: what they need for any search.

Imports make objects that stay: to look for garbage among them takes an eighth of the CPU, here and in later imports.
"""

from __future__ import annotations

import gc

gc.disable()
try:
    import tuner.execution.trial_process  # noqa: F401
finally:
    gc.freeze()
    gc.enable()
