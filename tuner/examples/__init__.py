"""The shipped experiments, with what they name: search spaces, trainables, and launcher files of clusters.

In a checkout these folders lie at its top. A wheel holds them in this package, so that a user's own ``trainables`` is
never hidden by ours.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

FOLDER = _PACKAGE if (_PACKAGE / "trainables").is_dir() else _PACKAGE.parents[1]
"""The folder of ``experiments``, ``search_spaces``, ``trainables`` and ``cluster``."""


def names() -> list[str]:
    """What ``tuner run NAME`` takes in place of a file, sorted."""
    return sorted(file.stem for file in FOLDER.joinpath("experiments").glob("*.yaml"))


def experiment(name: str) -> Path | None:
    """The file of the shipped experiment called ``name``; None if there is none."""
    return FOLDER / "experiments" / f"{name}.yaml" if name in names() else None
