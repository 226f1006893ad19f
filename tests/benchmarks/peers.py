"""Searches of other libraries behind our contracts, so that the same simulator drives them in the same virtual time.

Each library's own objects are asked and told in the order in which its own loop does it; virtual time stands still
while they think, which favours those that think long. They get the search space that ours get, with its log scales, and
the defaults of their library for all that `regret.METHODS` does not name. Syne Tune 0.16 has ASHA with stopping only. A
parameter with a condition is one without to them, and counts only while it is active.

Checked against Syne Tune's own simulator, without its delays and polling every 0.02 virtual seconds: the same seed of
its ASHA with grace period 3 gave the same 4,262 reports there and here (LCBench task 168331). Checked against the own
loops of SMAC 2.3.1 and DEHB 0.1.2 with one worker (`regret.py`'s task "plain 8"): the same first 20 configurations of
SMAC, and 60 pairs of configuration and budget of SMAC with Hyperband and of DEHB, there and here.

SMAC and DEHB are not among the packages of ``[benchmarks]``: pyrfr, of SMAC, is built by ``swig``, and
DEHB wants numpy below 2, though it works with 2.4 when numpy is put back after it.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from typing import Any


def quiet() -> None:
    """Nothing of the libraries' logging and deprecations; scikit-learn without its checks of arguments, for speed."""
    import optuna
    import sklearn

    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("syne_tune").setLevel(logging.ERROR)
    logging.getLogger("smac").setLevel(logging.ERROR)
    if importlib.util.find_spec("loguru") is not None:  # it comes with DEHB
        from loguru import logger

        logger.disable("dehb")
    sklearn.set_config(assume_finite=True, skip_parameter_validation=True)
    _quick_percentiles()


def _quick_percentiles() -> None:
    """Percentiles of unweighted values without scikit-learn's array API, in which CQR spends nine tenths of its time.

    Compared on 20,000 random samples, and on a whole search of CQR: the same to the last bit.
    """
    import math

    import numpy as np
    from sklearn._loss import loss

    slow = loss._weighted_percentile

    def quick(values: Any, weights: Any, rank: float = 50, average: bool = False, xp: Any = None) -> Any:
        if average or values.ndim != 1 or not (weights == 1).all() or np.isnan(values).any():
            return slow(values, weights, rank, average, xp)
        last = len(values) - 1
        return np.sort(values)[min(max(math.ceil(rank / 100 * len(values)) - 1, 0), last)]

    if slow.__name__ != "quick":
        loss._weighted_percentile = quick
