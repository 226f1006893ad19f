"""The forms of ``trainable`` that are not a function: a script, a configuration of Hydra or Lightning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.integrations.requirements import require
from tuner.trainable.adapter import FileAdapter
from tuner.trainable.script import is_script, read_script

_CONFIGURATION = re.compile(r"(?P<kind>hydra|lightning):(?P<file>[^:]+\.ya?ml)(:(?P<function>[^:]+:[A-Za-z_]\w*))?")
"""A configuration file, and a function of Hydra that it is for."""

_EXTRAS = {"hydra": "hydra", "lightning": "lightning-cli"}


def adapter_of(reference: str, roots: tuple[Path, ...]) -> FileAdapter | None:
    """The file that ``reference`` names, read as a trainable; None if it names a function.

    Raises InputError if there is no such file, or if it cannot be a trainable.
    """
    if is_script(reference):
        return read_script(reference, roots)
    named = _CONFIGURATION.fullmatch(reference)
    return None if named is None else _configuration(reference, named, roots)


def own_space(reference: Any, roots: tuple[Path, ...]) -> dict[str, Any] | None:
    """The search space that the trainable itself has: ``hydra.sweeper.params`` of a Hydra configuration.

    As ``search_space`` of an experiment; None if it has none. Raises InputError if it cannot be read.
    """
    named = _CONFIGURATION.fullmatch(reference) if isinstance(reference, str) else None
    if named is None or named["kind"] != "hydra":
        return None
    return _configuration(reference, named, roots).own_space()


def _configuration(reference: str, named: re.Match[str], roots: tuple[Path, ...]) -> FileAdapter:
    trainable = f"trainable {reference}"
    try:
        require(_EXTRAS[named["kind"]], trainable)
    except ImportError as error:
        raise InputError(str(error)) from None
    try:
        if named["kind"] == "lightning":
            from tuner.trainable.lightning_config import read_lightning

            return read_lightning(reference, named["file"], roots)
        from tuner.trainable.hydra_config import read_hydra
    except ImportError as error:
        raise InputError(f"{trainable}: {error}") from None
    return read_hydra(reference, named["file"], named["function"] or "", roots)
