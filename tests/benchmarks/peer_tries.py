"""Constants of other libraries that were tried, six for each method, on the decision tasks of ``regret.py``.

    python tests/benchmarks/regret.py --part decision --seeds 1 --workers 8 --full-trials 20 --methods "try SMAC*"

The first try of each is the entry of `regret.METHODS`: with the library's defaults, and a first rung of 3 epochs.
"""

from __future__ import annotations

from dataclasses import replace

from peer import PeerOptions
from peer_dehb import DehbPair
from peer_optuna import OptunaPair
from peer_smac import SmacFacade
from peer_syne_tune import SyneTuneBaseline

_SMAC, _SMAC_HYPERBAND, _DEHB = SmacFacade(20), SmacFacade(60, 3), DehbPair(3)
_CQR, _BOHB = SyneTuneBaseline("ASHACQR", 3), SyneTuneBaseline("BOHB", 3, unit=True)
_TPE, _TPE_HALVING = OptunaPair(3), OptunaPair(3, pruner="halving")
_GP, _GP_HALVING = OptunaPair(3, "gp"), OptunaPair(3, "gp", "halving")

TRIES: dict[str, PeerOptions] = {
    "try SMAC, a tenth at random": replace(_SMAC, initial=0.1),
    "try SMAC, n_trials 40": replace(_SMAC, trials=40),
    "try SMAC, retrained after each": replace(_SMAC, retrain_after=1),
    "try SMAC, a tenth at random, retrained after each": replace(_SMAC, initial=0.1, retrain_after=1),
    "try SMAC, Gaussian process": replace(_SMAC, retrain_after=1, model="gp"),
    "try SMAC + Hyperband, min 1": replace(_SMAC_HYPERBAND, min_resource=1),
    "try SMAC + Hyperband, min 9": replace(_SMAC_HYPERBAND, min_resource=9),
    "try SMAC + Hyperband, min 9, n_trials 20": replace(_SMAC_HYPERBAND, min_resource=9, trials=20),
    "try SMAC + Hyperband, min 9, retrained after each": replace(_SMAC_HYPERBAND, min_resource=9, retrain_after=1),
    "try SMAC + Hyperband, min 3, eta 4": replace(_SMAC_HYPERBAND, reduction_factor=4),
    "try DEHB, min 1": replace(_DEHB, min_resource=1),
    "try DEHB, min 9": replace(_DEHB, min_resource=9),
    "try DEHB, min 3, eta 4": replace(_DEHB, reduction_factor=4),
    "try DEHB, min 9, mutation 0.8": replace(_DEHB, min_resource=9, mutation=0.8),
    "try DEHB, min 9, crossover 0.9": replace(_DEHB, min_resource=9, crossover=0.9),
    "try Syne Tune ASHA + CQR, grace 1": replace(_CQR, grace_period=1),
    "try Syne Tune ASHA + CQR, grace 9": replace(_CQR, grace_period=9),
    "try Syne Tune ASHA + CQR, grace 17": replace(_CQR, grace_period=17),
    "try Syne Tune ASHA + CQR, grace 3, eta 4": replace(_CQR, reduction_factor=4),
    "try Syne Tune ASHA + CQR, grace 9, eta 2": replace(_CQR, grace_period=9, reduction_factor=2),
    "try Syne Tune BOHB, grace 1": replace(_BOHB, grace_period=1),
    "try Syne Tune BOHB, grace 9": replace(_BOHB, grace_period=9),
    "try Syne Tune BOHB, grace 17": replace(_BOHB, grace_period=17),
    "try Syne Tune BOHB, grace 3, eta 4": replace(_BOHB, reduction_factor=4),
    "try Syne Tune BOHB, grace 9, eta 2": replace(_BOHB, grace_period=9, reduction_factor=2),
    "try Optuna TPE + Hyperband, min 1": replace(_TPE, min_resource=1),
    "try Optuna TPE + Hyperband, min 9": replace(_TPE, min_resource=9),
    "try Optuna TPE + Hyperband, min 17": replace(_TPE, min_resource=17),
    "try Optuna TPE + Hyperband, min 9, multivariate": replace(_TPE, min_resource=9, multivariate=True),
    "try Optuna TPE + Hyperband, min 3, eta 4": replace(_TPE, reduction_factor=4),
    "try Optuna TPE + SuccessiveHalving, min 1": replace(_TPE_HALVING, min_resource=1),
    "try Optuna TPE + SuccessiveHalving, min 9": replace(_TPE_HALVING, min_resource=9),
    "try Optuna TPE + SuccessiveHalving, min 17": replace(_TPE_HALVING, min_resource=17),
    "try Optuna TPE + SuccessiveHalving, min 9, multivariate": replace(_TPE_HALVING, min_resource=9, multivariate=True),
    "try Optuna TPE + SuccessiveHalving, min 3, eta 4": replace(_TPE_HALVING, reduction_factor=4),
    "try Optuna GP + Hyperband, min 9": replace(_GP, min_resource=9),
    "try Optuna GP + Hyperband, min 17": replace(_GP, min_resource=17),
    "try Optuna GP + SuccessiveHalving, min 9": replace(_GP_HALVING, min_resource=9),
    "try Optuna GP + SuccessiveHalving, min 17": replace(_GP_HALVING, min_resource=17),
}
