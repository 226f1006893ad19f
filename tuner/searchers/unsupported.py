"""What searches that fit a model have in common: they choose values themselves."""

from __future__ import annotations

from tuner.spec.space import Computed, GridSearch, Path, Space

Problems = list[tuple[Path, str]]
"""(path of a parameter, message with the remedy)"""


def unsupported_by_model(space: Space) -> Problems:
    """The parameters of ``space`` that a model cannot choose."""
    found: Problems = []
    for parameter in space.parameters:
        if isinstance(parameter.domain, GridSearch):
            found.append((parameter.path, "grid_search belongs to search.kind grid or random: use choice here"))
        elif isinstance(parameter.domain, Computed):
            found.append(
                (parameter.path, "sample_from belongs to search.kind grid or random: compute it in the trainable")
            )
    return found


def unsupported_conditions(space: Space, remedy: str) -> Problems:
    """The parameters that can be inactive."""
    return [(p.path, f"has a condition ({p.condition().strip()}); {remedy}") for p in space.parameters if p.when]


def unsupported_priors(space: Space, remedy: str) -> Problems:
    """The parameters that have a prior."""
    return [(p.path, f"has a {p.prior}, which would be ignored; {remedy}") for p in space.parameters if p.prior]
