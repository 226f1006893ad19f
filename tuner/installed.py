"""What is installed beside this package, what this package requires, and how to install the rest."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those packages that are installed; also tuner may be a checkout that nobody installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def requirements() -> list[str]:
    """All that tuner requires, its extras too; none if it is a checkout that nobody installed."""
    try:
        return requires("tuner") or []
    except PackageNotFoundError:
        return []


def how_to_install(extra: str) -> str:
    """The command that installs what an extra of tuner requires."""
    return f"pip install 'tuner[{extra}]', or in a clone pip install -e '.[{extra}]'"
