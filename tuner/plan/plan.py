"""What will happen: a checked ``Plan`` of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tuner.experiment.reader import Experiment
from tuner.experiment.spec import ExperimentSpec
from tuner.plan.cluster import Cluster, Node
from tuner.searchers.prior_draws import first_points
from tuner.spec.configuration import Configuration, merge
from tuner.spec.problem import SearchProblem
from tuner.trainable.trainable import Trainable
from tuner.training.trial_cpus import planned

_UNWRITABLE = 10**4000
"""Python writes no integer of more than 4,300 digits."""

_DRAWS = 20
"""Configurations from which that for ``prepare`` is chosen."""

_FEW = 20
"""Names that fit into a message."""


@dataclass(frozen=True)
class Plan:
    """All that a run needs, checked: nothing in it can be refused later."""

    experiment: Experiment
    trainable: Trainable
    cluster: Cluster
    request: Mapping[str, float]
    """Resources of one worker of a trial, by Ray's names."""
    trials: int
    seed: int
    checkpoint_bytes: int | None
    """The largest checkpoint that the trainable expects; None if it does not say."""
    reducible: bool
    """Whether the trainable declares ``micro_batch``, so that ``on_oom: reduce_batch`` can help."""
    acceptance: float
    """The share of drawn configurations that satisfy the constraints; 1 without any."""
    search_reason: str = ""
    """Why ``auto`` chose this search; empty if the experiment names it."""
    earlier: int = 0
    """Trials of earlier runs that the searcher learns from."""
    notes: tuple[str, ...] = ()
    """How the plan follows from the kind of the trainable, such as what ends its trials: told with the plan and at the
    start of a search."""

    @cached_property
    def notices(self) -> list[str]:
        """Likely mistakes: shown as `notes` are, and recorded with the results."""
        return [*self._never_read(), *self._never_given(), *self._never_first()]

    def _never_read(self) -> Iterator[str]:
        searched = [p.name for p in self.spec.search_space.parameters if p.domain.count != 1]
        searched += [self.spec.repeat.over] if self.spec.repeat else []
        names = self.trainable.never_read(searched)
        if names:
            one = len(names) == 1
            listed = f"{', '.join(names)} {'is' if one else 'are'} never read by the trainable"
            change = "its values change" if one else "their values change"
            yield f"{listed} {self.trainable.reference}: {change} nothing"

    def _never_given(self) -> Iterator[str]:
        given = [*(p.name for p in self.spec.search_space.parameters), *self.spec.params]
        given += [self.spec.repeat.over] if self.spec.repeat else []
        for name in self.trainable.never_given(given):
            hint = f"; they give {', '.join(given)}" if len(given) <= _FEW else ""
            yield (
                f"the trainable {self.trainable.reference} reads config[{name!r}], which neither search_space nor "
                f"params gives: its trials will fail with a KeyError{hint}"
            )

    def _never_first(self) -> Iterator[str]:
        points = first_points(self.task) if self.spec.search.follows_priors else {}
        for what, point in points.items():
            if point is None:
                limits = ", ".join(map(str, self.spec.search_space.constraints))
                yield f"no configuration with {what} satisfies the constraints ({limits}): none is the first trial"

    @property
    def spec(self) -> ExperimentSpec:
        return self.experiment.spec

    @property
    def slots(self) -> int:
        """Trials that run at once, where there is an autoscaler with all the nodes that it may start."""
        return self._limited(self.cluster.most_slots(self.request, self.spec.resources.workers))

    def slots_on(self, nodes: tuple[Node, ...]) -> int:
        """Trials to run at once, or to wait for what the autoscaler starts, while the cluster has these ``nodes``."""
        cluster = replace(self.cluster, nodes=nodes)
        return self._limited(cluster.slots_ahead(self.request, self.spec.resources.workers))

    def fits_on(self, nodes: tuple[Node, ...]) -> bool:
        """Whether a trial has room on ``nodes``, without what an autoscaler may start."""
        return replace(self.cluster, nodes=nodes).slots(self.request, self.spec.resources.workers) > 0

    def _limited(self, slots: int) -> int:
        return min(self.spec.resources.max_concurrent_trials or self.trials, self.trials, slots)

    @property
    def waits_for(self) -> str:
        """The node types of the autoscaler without which no trial can start, in words; empty if one can."""
        if self.cluster.autoscaler is None or self.cluster.slots(self.request, self.spec.resources.workers):
            return ""
        return " or ".join(map(str, self.cluster.autoscaler.useful(self.request)))

    @property
    def checkpoints(self) -> int:
        """Upper bound on the checkpoints on disk at any time.

        - A running trial holds its best ones, its latest two and the one being written.
        - A paused trial holds its best ones, and its latest two, or one of them and another trial's.
        - An ended trial holds its best ones and its latest.

        With several objectives all trials may be on the front, which keeps its checkpoints.
        """
        keep = self.spec.checkpoints
        running = self.slots * (keep.keep_per_trial + 3)
        if self.spec.scheduler.pauses:
            others = (self.trials - self.slots) * (keep.keep_per_trial + 2)
        else:
            kept = self.trials if len(self.spec.objectives) > 1 else min(keep.keep_trials, self.trials)
            others = kept * (keep.keep_per_trial + 1)
        return running + others + 1  # and best/

    @property
    def task(self) -> SearchProblem:
        fidelity = self.spec.scheduler.fidelity
        max_t = fidelity[1] if fidelity else None
        modes = tuple(objective.mode for objective in self.spec.objectives)
        modes = modes[:1] if self.scalarised else modes
        return SearchProblem(self.spec.search_space, modes, self.trials, max_t, self.seed, self.earlier)

    def prepare(self) -> Configuration:
        """Runs the trainable's ``prepare``; the parameters that it replaces. Raises whatever the user's code raises.

        Of some draws it gets the one with the most active parameters, so that it sees to what is optional, too.
        """
        import numpy as np

        space, rng = self.spec.search_space, np.random.default_rng(self.seed)
        draws = [space.sample(rng) for _ in range(_DRAWS)]
        fullest = max(draws, key=lambda draw: np.count_nonzero(~np.isnan(space.to_unit(draw))))
        with planned(self.request.get("CPU", 0)):
            return self.trainable.prepare(merge(self.spec.params, fullest))

    @property
    def scalarised(self) -> bool:
        """Whether the search is for the weighted sum of several objectives, as it can search for one number only."""
        return len(self.spec.objectives) > self.spec.search.max_objectives

    @property
    def modelled(self) -> float | None:
        """About how many suggestions come from a model of results; None where only a class of the user's knows."""
        return self.spec.search.modelled(self.task, self.slots)

    @property
    def required_metrics(self) -> tuple[tuple[str, str], ...]:
        """What every report must hold, each with the key of the experiment file that asks for it."""
        return self.spec.required_metrics

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        count = self.spec.search_space.size
        rungs = self.spec.scheduler.rungs()
        reach = self.spec.scheduler.expected_at_rungs(self.trials)
        return {
            "experiment": self.spec.name,
            "configurations": None if count >= _UNWRITABLE else int(count),
            "trials": self.trials,
            "search": self.spec.search.kind,
            "search_reason": self.search_reason,
            "seed": self.spec.search.seed,  # None: each search draws its own
            "modelled": self.modelled,
            "rungs": [{"at": rung, "expected_trials": n} for rung, n in zip(rungs, reach, strict=True)],
            "trial_resources": dict(self.request),
            "slots": self.slots,
            "checkpoints": self.checkpoints,
            "checkpoint_bytes": self.checkpoint_bytes,
            "notices": self.notices,
        }
