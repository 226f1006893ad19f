"""How HyperOpt is asked and told. Imported by `HyperOpt.build` only, because it imports HyperOpt."""

from __future__ import annotations

from typing import Any

import hyperopt
import hyperopt.base
import numpy as np

from tuner.configuration import Configuration
from tuner.searchers.base import Searcher
from tuner.searchers.hyperopt import HyperOpt
from tuner.searchers.prior_draws import PriorDraws
from tuner.spec.space import Choice, Domain, Parameter, at
from tuner.spec.task import Task


class HyperOptSearcher(Searcher):
    """Keeps the documents of all trials itself, and shows HyperOpt a bounded number of them.

    HyperOpt draws a number from [0, 1] for a numeric parameter (its position in the domain) and an index for a choice:
    its own domains give integers as floats and lists as tuples, and round to quanta outside the range.
    """

    def __init__(self, task: Task, options: HyperOpt) -> None:
        self._space = task.space
        self._sign = task.sign
        self._options = options
        self._rng = np.random.default_rng(task.seed)
        self._priors = PriorDraws(task, options.n_initial_points)
        self._domain = hyperopt.Domain(_nothing, {p.name: _node(p) for p in task.space.parameters if p.free})
        self._asked = 0
        self._pending: dict[str, dict[str, Any]] = {}
        """HyperOpt's documents of the trials that have not ended, by our id."""
        self._ended: list[dict[str, Any]] = []

    def suggest(self, trial_id: str) -> Configuration:
        drawn = self._draw()
        believed = self._priors.draw()

        def choose(parameter: Parameter) -> Any:
            return believed.get(parameter.path, _decode(parameter.domain, drawn[parameter.name]))

        configuration = self._space.build(choose)
        self.adopt(trial_id, configuration)
        return configuration

    def adopt(self, trial_id: str, configuration: Configuration) -> None:
        values: dict[str, list[float | int]] = {p.name: [] for p in self._space.parameters if p.free}

        def remember(parameter: Parameter) -> Any:
            value = at(configuration, parameter.path)
            values[parameter.name] = [_encode(parameter.domain, value)]
            return value

        self._space.build(remember)
        self._pending[trial_id] = _document(self._asked, values)
        self._asked += 1

    def end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        document = self._pending.pop(trial_id, None)
        if document is None:
            return
        failed = values is None
        document["state"] = hyperopt.JOB_STATE_DONE
        document["result"] = {"status": hyperopt.STATUS_FAIL if failed else hyperopt.STATUS_OK}
        if values is not None:
            document["result"]["loss"] = -self._sign * values[0]
        self._ended.append(document)
        if len(self._ended) > self._options.max_history:
            self._forget()

    def _draw(self) -> dict[str, Any]:
        """What HyperOpt suggests for every parameter, active or not."""
        options, seed = self._options, int(self._rng.integers(2**31 - 1))
        documents = sorted((*self._ended, *self._pending.values()), key=lambda document: document["tid"])
        trials = hyperopt.trials_from_docs(documents, validate=False)
        if not self._domain.params:
            return {}
        if sum("loss" in document["result"] for document in self._ended) < options.n_initial_points:
            (suggested,) = hyperopt.rand.suggest([self._asked], self._domain, trials, seed)
        else:
            (suggested,) = hyperopt.tpe.suggest(
                [self._asked],
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

    def _forget(self) -> None:
        """Keeps the best quarter of ``max_history`` and the latest."""
        quarter = self._options.max_history // 4
        ranked = sorted(self._ended, key=lambda document: document["result"].get("loss", np.inf))
        rest = sorted(ranked[quarter:], key=lambda document: document["tid"])
        self._ended = ranked[:quarter] + rest[-quarter:]


def _nothing(_: Any) -> None:
    """The objective: HyperOpt's Domain asks for one, and only `hyperopt.fmin` calls it."""


def _document(tid: int, values: dict[str, list[float | int]]) -> dict[str, Any]:
    return {
        "tid": tid,
        "state": hyperopt.JOB_STATE_NEW,
        "spec": None,
        "result": {"status": hyperopt.STATUS_NEW},
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
    """Where in its domain ``value`` lies; the centre of all draws that `_decode` makes it of."""
    unit = domain.to_unit(value)
    return int(unit * domain.count) if isinstance(domain, Choice) else unit
