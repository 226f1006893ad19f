"""The base of trainables that are not a function ``train(config)``: scripts, objectives, configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

KeyPath = tuple[str, ...]


class ConfigurationError(Exception):
    """The framework does not take the configuration of a trial."""


class Adapter(ABC):
    """Something of the user's as a function of the configuration."""

    @abstractmethod
    def __call__(self, config: Mapping[str, Any]) -> Any:
        """Trains with ``config``; returns what is to be reported besides, or None."""

    def config_problems(self, config: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
        """Reasons to refuse ``config``, found without training: (path of the parameter, message)."""
        return []

    def reporting(self, required: Sequence[tuple[str, str]]) -> Self:
        """The same, where every report must hold the ``required`` metrics, each with its key in the experiment."""
        return self


class FileAdapter(Adapter):
    """An adapter of a file that is not itself a module with the trainable's function."""

    @property
    @abstractmethod
    def module(self) -> ModuleType:
        """Holds the optional functions of the trainable (`evaluate` and others); its ``__file__`` is the user's."""

    def own_space(self) -> dict[str, Any] | None:
        """The search space that the file itself has, as ``search_space`` of an experiment; None if it has none."""
        return None


def module_of(file: Path) -> ModuleType:
    """An empty module, whose ``__file__`` is the user's ``file``."""
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    return module
