"""What ``trainable`` may name besides a function, told by its form: a script, or a configuration of Hydra."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.errors import InputError
from tuner.integrations.requirements import require
from tuner.trainable.adapter import FileAdapter
from tuner.trainable.script import is_script, read_script

_CONFIGURATION = re.compile(r"(?P<kind>hydra):(?P<file>[^:]+\.ya?ml)(:(?P<function>[^:]+:[A-Za-z_]\w*))?")
"""A configuration file, and a function that it is for."""


def adapter_of(reference: str, roots: tuple[Path, ...]) -> FileAdapter | None:
    """The file that ``reference`` names, read as a trainable; None if it names a function.

    Raises InputError if there is no such file, or if it cannot be a trainable.
    """
    if is_script(reference):
        return read_script(reference, roots)
    named = _CONFIGURATION.fullmatch(reference)
    if named is None:
        return None
    try:
        require(named["kind"], f"trainable {reference}")
        from tuner.trainable.hydra_config import read_hydra
    except ImportError as error:
        raise InputError(str(error)) from None
    return read_hydra(reference, named["file"], named["function"] or "", roots)
