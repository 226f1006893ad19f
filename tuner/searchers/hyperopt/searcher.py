"""How HyperOpt is asked and told. Imported by `HyperOpt.build` only, because it imports HyperOpt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import hyperopt
import hyperopt.base
import numpy as np

from tuner.searchers.base import Searcher
from tuner.searchers.observations import Observations
from tuner.searchers.prior_draws import PriorDraws
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Domain, Parameter, at


@dataclass(frozen=True)
class TpeOptions:
    """The options of the same names of `tuner.searchers.HyperOpt`."""

    gamma: float
    n_EI_candidates: int
    prior_weight: float
    max_history: int


class HyperOptSearcher(Searcher):
    """Shows HyperOpt a bounded number of trials, with their values at one fidelity (`Observations`).

    A trial that runs or failed counts as worse than all others; one that waits or ended below that fidelity is left
    out.

    HyperOpt draws a number from [0, 1] for a numeric parameter (its position in the domain) and an index for a choice.
    Its own domains are not used: they give integers as floats and lists as tuples, and round to quanta outside the
    range.
    """

    def __init__(self, task: SearchProblem, options: TpeOptions, initial: int) -> None:
        """``initial``: trials with a value before anything is modelled."""
        self._space = task.space
        self._sign = task.sign
        self._options = options
        self._rng = np.random.default_rng(task.seed)
        self._initial = initial
        self._priors = PriorDraws(task, initial)
        self._domain = hyperopt.Domain(_nothing, {p.name: _node(p) for p in task.space.parameters if p.free})
        self._values: list[dict[str, list[float | int]]] = []
        """Of every trial ever started, in order: what HyperOpt would have drawn for each active parameter."""
        self._pending: dict[str, int] = {}
        """Indices in ``_values`` of the trials that have not ended."""
        self._running: set[int] = set()
        """Of those: the ones that are not paused."""
        self._failed: deque[int] = deque(maxlen=options.max_history // 4)
        self._observations = Observations(task.max_t, enough=initial)

    def suggest(self, trial_id: str) -> Configuration:
        drawn = self._draw()
        believed = self._priors.draw()

        def choose(parameter: Parameter) -> Any:
            return believed.get(parameter.path, _decode(parameter.domain, drawn[parameter.name]))

        configuration = self._space.build(choose)
        self.register(trial_id, configuration)
        return configuration

    def register(self, trial_id: str, configuration: Configuration) -> None:
        values: dict[str, list[float | int]] = {p.name: [] for p in self._space.parameters if p.free}

        def remember(parameter: Parameter) -> Any:
            value = at(configuration, parameter.path)
            values[parameter.name] = [_encode(parameter.domain, value)]
            return value

        self._space.build(remember)
        number = len(self._values)
        self._pending[trial_id] = number
        self._running.add(number)
        self._observations.start(number)
        self._values.append(values)

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending:
            self._priors.trained.on_report(trial_id, step)
            self._observations.report(self._pending[trial_id], step, -self._sign * value)

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        self._running.discard(self._pending.get(trial_id, -1))

    def on_resume(self, trial_id: str) -> None:
        if trial_id in self._pending:
            self._running.add(self._pending[trial_id])

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        number = self._pending.pop(trial_id, None)
        if number is None:
            return
        self._priors.trained.end(trial_id, step)
        self._running.discard(number)
        if values is None:
            self._observations.fail(number)
            self._failed.append(number)
        else:
            self._observations.end(number, step, -self._sign * values[0])

    def _draw(self) -> dict[str, Any]:
        """What HyperOpt suggests for every parameter, active or not."""
        options, seed = self._options, int(self._rng.integers(2**31 - 1))
        if not self._domain.params:
            return {}
        documents, following = self._shown(), [len(self._values)]
        trials = hyperopt.trials_from_docs(documents, validate=False)
        if sum("loss" in document["result"] for document in documents) < self._initial:
            (suggested,) = hyperopt.rand.suggest(following, self._domain, trials, seed)
        else:
            (suggested,) = hyperopt.tpe.suggest(
                following,
                self._domain,
                trials,
                seed,
                prior_weight=options.prior_weight,
                n_startup_jobs=0,
                n_EI_candidates=options.n_EI_candidates,
                gamma=options.gamma,
                verbose=False,
            )
        return hyperopt.base.spec_from_misc(suggested["misc"])  # type: ignore[no-any-return]

    def _shown(self) -> list[dict[str, Any]]:
        """HyperOpt's records of the trials that it is to learn from, in the order of their start."""
        known = self._observations.known(self._options.max_history - len(self._failed))
        results: dict[int, dict[str, Any]] = {number: {"status": hyperopt.STATUS_NEW} for number in self._running}
        results |= {number: {"status": hyperopt.STATUS_FAIL} for number in self._failed}
        results |= {number: {"status": hyperopt.STATUS_OK, "loss": loss} for number, loss in known.items()}
        return [_document(number, self._values[number], results[number]) for number in sorted(results)]


def _nothing(_: Any) -> None:
    """The objective: HyperOpt's Domain asks for one, and only `hyperopt.fmin` calls it."""


def _document(tid: int, values: dict[str, list[float | int]], result: dict[str, Any]) -> dict[str, Any]:
    """HyperOpt's record of a trial."""
    pending = result["status"] == hyperopt.STATUS_NEW
    return {
        "tid": tid,
        "state": hyperopt.JOB_STATE_NEW if pending else hyperopt.JOB_STATE_DONE,
        "spec": None,
        "result": result,
        "misc": {
            "tid": tid,
            "cmd": None,
            "idxs": {name: [tid] * len(value) for name, value in values.items()},
            "vals": values,
        },
        "exp_key": None,
    }


def _node(parameter: Parameter) -> Any:
    if isinstance(parameter.domain, Choice):
        return hyperopt.hp.choice(parameter.name, list(range(parameter.domain.count)))
    return hyperopt.hp.uniform(parameter.name, 0.0, 1.0)


def _decode(domain: Domain, drawn: Any) -> Any:
    return domain.value(int(drawn)) if isinstance(domain, Choice) else domain.from_unit(float(drawn))


def _encode(domain: Domain, value: Any) -> float | int:
    """The position of ``value`` in its domain: the centre of all draws that `_decode` turns into it."""
    unit = domain.to_unit(value)
    return int(unit * domain.count) if isinstance(domain, Choice) else unit
