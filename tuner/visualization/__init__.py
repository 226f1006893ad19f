"""Tables and pages of a run, and by the same name `tuner.trainable.reporting.report`.

``tuner.report(loss=0.25)`` is the call in training code. Python sets ``tuner.report`` to this package when something
imports a module of it, so the package itself can be called.
"""

import sys
from types import ModuleType
from typing import Any

from tuner.trainable.reporting import report


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> None:
        report(*args, **options)


sys.modules[__name__].__class__ = _Callable
