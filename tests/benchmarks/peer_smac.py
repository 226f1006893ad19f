"""SMAC3's facades, through ask and tell."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any, Literal

from peer import REDUCTION_FACTOR, Peer
from peer_budgets import BudgetedPeer, Job, configuration_space

from tuner.spec.space import Space


class Smac(BudgetedPeer):
    """A random forest with expected improvement; with ``min_resource`` in Hyperband, else each trial to its end."""

    def __init__(self, space: Space, max_t: int, options: SmacFacade, seed: int) -> None:
        import smac

        super().__init__(space, max_t)
        budgets = {} if options.min_resource is None else {"min_budget": options.min_resource, "max_budget": max_t}
        with tempfile.TemporaryDirectory() as folder:  # it writes only here and where it is told to save
            scenario = smac.Scenario(
                configuration_space(space, seed),
                output_directory=folder,
                deterministic=True,
                n_trials=options.trials,
                seed=seed,
                **budgets,
            )
            facade = options.facade
            parts = {
                "initial_design": facade.get_initial_design(scenario, max_ratio=options.initial),
                "config_selector": facade.get_config_selector(scenario, retrain_after=options.retrain_after),
            }
            if options.min_resource is not None:
                parts["intensifier"] = facade.get_intensifier(scenario, eta=options.reduction_factor)
            self._smac = facade(scenario, _never, logging_level=False, **parts)

    def ask(self) -> Job | None:
        try:
            asked = self._smac.ask()
        except StopIteration:  # it found no configuration that it had not suggested before
            return None
        return Job(asked.config, asked.config, self._max_t if asked.budget is None else asked.budget, asked)

    def tell(self, job: Job, value: float) -> None:
        from smac.runhistory import TrialValue

        self._smac.tell(job.asked, TrialValue(cost=-value), save=False)


def _never(config: Any, seed: int = 0, budget: float = 0) -> float:
    raise AssertionError("SMAC is asked and told")


@dataclass(frozen=True)
class SmacFacade:
    """With Hyperband where there is a ``min_resource``.

    ``trials``: how many evaluations SMAC believes to have. The share ``initial`` of them comes before its model, and at
    most 10 for each parameter: if it believes in many, a search of 30 trials never gets to the model.
    """

    trials: int
    min_resource: int | None = None
    reduction_factor: int = REDUCTION_FACTOR
    initial: float = 0.25
    retrain_after: int = 8
    model: Literal["forest", "gp"] = "forest"

    @property
    def facade(self) -> Any:
        """The class."""
        import smac

        if self.model == "gp":
            return smac.BlackBoxFacade
        return smac.HyperparameterOptimizationFacade if self.min_resource is None else smac.MultiFidelityFacade

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        return Smac(space, max_t, self, seed)
