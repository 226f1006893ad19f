"""The framework of an integration: whether it is installed, in a version that the package's extra allows."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from tuner.installed import how_to_install, requirements, versions


def require(extra: str, whose: str = "") -> None:
    """Checks what the extra of that name of this package requires (setup.cfg), for ``whose``: by default its module.

    Raises:
        ImportError: If a package is missing, or of a version that the extra does not allow.
    """
    whose = whose or f"tuner.integrations.{extra.replace('-', '_')}"
    remedy = how_to_install(extra)
    for requirement in _requirements(extra):
        found = versions([requirement.name]).get(requirement.name)
        if found is None:
            raise ImportError(f"{whose} needs {requirement.name}: {remedy}")
        if not requirement.specifier.contains(found, prereleases=True):
            raise ImportError(
                f"{whose} works with {requirement.name} {requirement.specifier}, and {found} is installed: {remedy}"
            )


def _requirements(extra: str) -> Iterator[Requirement]:
    """What the extra adds, and the extras that it names."""
    for requirement in map(Requirement, requirements()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "tuner":
            for other in sorted(requirement.extras):
                yield from _requirements(other)
        else:
            yield requirement
