"""Learning curves from a function of the user's, named as ``module:function`` or ``file.py:function``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.simulator.curves import CurveFunction
from tuner.spec.configuration import Configuration
from tuner.spec.space import Space
from tuner.spec.user_imports import import_attribute, innermost, user_code


def curves_of(reference: str, space: Space, metric: str, fidelity: str) -> CurveFunction:
    """The curves of the function called ``reference`` in ``space``; the number of its columns is the last fidelity.

    Raises InputError if it cannot be imported or called, or if its answer has not the form of `CurveFunction`.
    """
    import numpy as np

    if ":" not in reference:
        raise InputError(f"--function {reference}: must be module:function or file.py:function")
    roots = (Path.cwd(),)
    function = import_attribute(reference, roots)
    if not callable(function):
        raise InputError(f"--function {reference}: is a {type(function).__name__}, not a function")

    def answers(configurations: Sequence[Configuration]) -> tuple[Any, Any]:
        try:
            with user_code(roots):
                values, seconds = function([dict(configuration) for configuration in configurations])
            return np.asarray(values, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything: it is shown, not hidden
            raise InputError(f"--function {reference}: {innermost(error)}") from None

    probe = space.sample(np.random.default_rng(0))
    values, _ = answers([probe])
    if values.ndim != 2:
        raise InputError(f"--function {reference}: gave an array with {values.ndim} dimensions for the values, not 2")
    name = reference.rpartition(":")[2]
    curves = CurveFunction(name, space, tuple(range(1, values.shape[1] + 1)), answers, metric, fidelity)
    curves.learning_curve(probe)
    return curves
