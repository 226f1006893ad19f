"""The framework of an integration: whether it is installed, in a version that the package's extra allows."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def require(extra: str) -> None:
    """Checks what the extra of that name of this package requires (setup.cfg).

    Raises:
        ImportError: If a package is missing, or of a version that the extra does not allow.
    """
    remedy = f"pip install 'tuner[{extra}]', or in a clone pip install -e '.[{extra}]'"
    for requirement in map(Requirement, requires("tuner") or ()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            raise ImportError(f"tuner.integrations.{extra} needs {requirement.name}: {remedy}") from None
        if not requirement.specifier.contains(found, prereleases=True):
            raise ImportError(
                f"tuner.integrations.{extra} works with {requirement.name} {requirement.specifier}, and {found} is "
                f"installed: {remedy}"
            )
