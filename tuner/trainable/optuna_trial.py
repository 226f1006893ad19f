"""The trial that an Optuna objective gets: it suggests what a configuration holds, and reports to the search."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.trainable.optuna_domains import as_text, contains
from tuner.trainable.returned import ObjectiveError, named
from tuner.training.reporting import report, trial_number

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

STEP = "step"
"""The metric that holds the ``step`` of ``trial.report``."""


@functools.cache
def trial_class() -> type[Any]:
    """Made when it is needed: Optuna takes half a second to import."""
    import optuna

    class ConfigurationTrial(optuna.trial.FixedTrial):  # type: ignore[misc]
        """An Optuna trial that suggests what a configuration holds, and reports to the search."""

        def __init__(self, values: dict[str, Any], groups: Mapping[str, Any], metrics: Sequence[str]) -> None:
            super().__init__({**groups, **values}, number=trial_number())
            self._names = list(values)
            self._metrics = metrics
            self._step: int | None = None
            self.reported: dict[str, Any] = {}
            """The latest report."""

        def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
            domain = as_text(distribution)
            if name not in self._params:
                raise ObjectiveError(
                    f"the objective suggests {name!r}, which the configuration does not have; it has: "
                    f"{', '.join(self._names) or 'nothing'}; add {name}: {domain} to search_space"
                )
            value = self._params[name]
            if not contains(distribution, value):
                raise ObjectiveError(
                    f"the objective suggests {name!r} from {domain}, and the configuration holds {value!r}: "
                    f"give search_space the same range"
                )
            return super()._suggest(name, distribution)

        def report(self, value: float, step: int) -> None:
            if len(self._metrics) != 1:
                raise NotImplementedError("trial.report is not for several objectives, as in Optuna")
            self._step = step
            self._send({self._metrics[0]: float(value)})

        def finish(self, value: Any) -> None:
            """Reports what the objective returned, unless the latest report says the same."""
            found = named(value, self._metrics, "the objective")
            if any(self.reported.get(name) != one for name, one in {**self._attributes(), **found}.items()):
                self._send(found)

        def _send(self, values: dict[str, float]) -> None:
            step = {} if self._step is None else {STEP: self._step}
            self.reported = {**self._attributes(), **step, **values}
            report(self.reported)

        def _attributes(self) -> dict[str, Any]:
            """The user's attributes that are numbers."""
            return {
                name: value
                for name, value in self._user_attrs.items()
                if isinstance(value, int | float | np.number) and not isinstance(value, bool)
            }

    return ConfigurationTrial
