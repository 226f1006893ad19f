"""Whether Python and the packages are those that tuner asks for."""

from __future__ import annotations

import configparser
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tuner.doctor.finding import Finding

REMEDY = "pip install -c constraints.txt -e . in the repository"


@dataclass(frozen=True)
class Needs:
    """What tuner asks for."""

    python: SpecifierSet
    packages: tuple[Requirement, ...]
    """Without extras."""


def check() -> Iterator[Finding]:
    """Python and the packages, where what tuner needs is known."""
    asked = needs()
    if asked is None:
        yield Finding("warning", "packages", "tuner is not installed, so its requirements are unknown", REMEDY)
        return
    yield python(asked)
    yield packages(asked)


def needs(repository: Path = Path(__file__).parents[2]) -> Needs | None:
    """As setup.cfg of the checkout says, which an editable installation may lag behind; else what is installed.

    None where tuner is neither.
    """
    if (repository / "setup.cfg").is_file():
        options = configparser.ConfigParser(interpolation=None)
        options.read(repository / "setup.cfg")
        if options.get("metadata", "name", fallback="") == "tuner":
            texts = options.get("options", "install_requires").split("\n")
            return _read(options.get("options", "python_requires"), [text for text in texts if text.strip()])
    try:
        installed = importlib.metadata.distribution("tuner")
    except importlib.metadata.PackageNotFoundError:
        return None
    return _read(installed.metadata["Requires-Python"], installed.requires or [])


def _read(python: str, texts: list[str]) -> Needs:
    requirements = [Requirement(text) for text in texts]
    return Needs(
        SpecifierSet(python),
        tuple(r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})),
    )


def python(asked: Needs, version: str = platform.python_version()) -> Finding:
    """The version of Python."""
    if version in asked.python:
        return Finding("ok", "python", f"{version} ({sys.executable})")
    return Finding("error", "python", f"{version}, but tuner needs {asked.python}", "make a venv with such a Python")


def packages(asked: Needs) -> Finding:
    """Every package that tuner needs: there, in a version that it allows."""
    wrong, versions = [], {}
    for requirement in asked.packages:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        versions[requirement.name] = version
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if wrong:
        return Finding("error", "packages", "; ".join(wrong), REMEDY)
    named = ", ".join(f"{name} {versions[name]}" for name in ("torch", "ray", "optuna") if name in versions)
    return Finding("ok", "packages", f"{len(versions)} as required, among them {named}")
