"""The framework of an integration: whether it is installed, in a version that the package's extra allows."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def require(extra: str, whose: str = "") -> None:
    """Checks what the extra of that name of this package requires (setup.cfg), for ``whose``: by default its module.

    Raises:
        ImportError: If a package is missing, or of a version that the extra does not allow.
    """
    whose = whose or f"tuner.integrations.{extra.replace('-', '_')}"
    remedy = f"pip install 'tuner[{extra}]', or in a clone pip install -e '.[{extra}]'"
    for requirement in _requirements(extra):
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            raise ImportError(f"{whose} needs {requirement.name}: {remedy}") from None
        if not requirement.specifier.contains(found, prereleases=True):
            raise ImportError(
                f"{whose} works with {requirement.name} {requirement.specifier}, and {found} is installed: {remedy}"
            )


def _requirements(extra: str) -> Iterator[Requirement]:
    """What the extra adds, and the extras that it names."""
    try:
        listed = requires("tuner") or ()
    except PackageNotFoundError:  # a checkout that is not installed
        listed = ()
    for requirement in map(Requirement, listed):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "tuner":
            for other in sorted(requirement.extras):
                yield from _requirements(other)
        else:
            yield requirement
