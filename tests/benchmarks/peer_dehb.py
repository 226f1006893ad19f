"""DEHB: differential evolution with Hyperband's budgets, through ask and tell.

A minimum that is no power of 3 below the end counts as the next one above: from 3 to 50, the budgets are 5.6, 16.7 and
50. SMAC's are the same.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from peer import REDUCTION_FACTOR, Peer
from peer_budgets import BudgetedPeer, Job, configuration_space

from tuner.spec.space import Space


class Dehb(BudgetedPeer):
    """It promotes only before its fourth bracket begins, where there are three budgets; later each has its own trials.

    With 8 workers the fourth begins while the first still waits for its nine trials: then nothing is promoted at all.
    """

    def __init__(self, space: Space, max_t: int, options: DehbPair, seed: int) -> None:
        import dehb
        from loguru import logger

        super().__init__(space, max_t)
        with tempfile.TemporaryDirectory() as folder:
            self._dehb = dehb.DEHB(
                cs=configuration_space(space, seed),
                min_fidelity=options.min_resource,
                max_fidelity=max_t,
                eta=options.reduction_factor,
                mutation_factor=options.mutation,
                crossover_prob=options.crossover,
                seed=seed,
                n_workers=1,  # more would start as many processes, for which `ask` has no use
                output_path=folder,
                save_freq="end",
            )
            logger.remove()  # closes its log, which has a thread

    def ask(self) -> Job:
        asked = self._dehb.ask()
        return Job(int(asked["config_id"]), asked["config"], float(asked["fidelity"]), asked)

    def tell(self, job: Job, value: float) -> None:
        self._dehb.tell(job.asked, {"fitness": -value, "cost": float(job.until)})


@dataclass(frozen=True)
class DehbPair:
    """With its defaults for all else."""

    min_resource: int
    reduction_factor: int = REDUCTION_FACTOR
    mutation: float = 0.5
    crossover: float = 0.5

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        return Dehb(space, max_t, self, seed)
