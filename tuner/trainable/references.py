"""What ``trainable`` may name besides a function, told by its form: a script, a configuration of Hydra or Lightning."""

from __future__ import annotations

from pathlib import Path

from tuner.trainable.adapter import FileAdapter
from tuner.trainable.script import is_script, read_script


def adapter_of(reference: str, roots: tuple[Path, ...]) -> FileAdapter | None:
    """The file that ``reference`` names, read as a trainable; None if it names a function.

    Raises InputError if there is no such file, or if it cannot be a trainable.
    """
    if is_script(reference):
        return read_script(reference, roots)
    return None
