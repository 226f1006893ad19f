"""A configuration of LightningCLI as a trainable: read in each trial, with the trial's parameters as arguments.

LightningCLI runs its subcommand ``fit`` as it does on the command line, and so the hooks of the user's classes.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import yaml
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI

from tuner.errors import InputError
from tuner.integrations.lightning import FILE_NAME, Report, device_arguments, resume
from tuner.spec.configuration import flat
from tuner.spec.user_imports import find_file, import_attribute, user_code
from tuner.trainable.adapter import ConfigurationError, FileAdapter, KeyPath, module_of
from tuner.trainable.lightning_arguments import FIT, REFUSALS, argument, new_parser, ordered, reason, unknown
from tuner.training.reporting import in_trial, trial_folder

_COMMANDS = {"val": "validate", "test": "test"}
"""The subcommand that scores a model on a split."""

_SUBCOMMANDS = (FIT, "validate", "test", "predict")


def read_lightning(reference: str, config: str, roots: tuple[Path, ...]) -> LightningConfiguration:
    """The configuration file ``config``; its classes are not imported. Raises InputError if it is not one."""
    file = find_file(config, roots)
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{reference} cannot be read: {' '.join(str(error).split())}") from None
    section = content if isinstance(content, dict) else {}
    nested = section.get(FIT)
    if isinstance(nested, dict):
        section = {name: value for name, value in section.items() if name not in _SUBCOMMANDS} | nested
    if not {"model", "trainer", "data"} & section.keys():
        raise InputError(
            f"{reference} is not a configuration of LightningCLI: it has none of the keys model, data and trainer, "
            f"neither at its top nor below {FIT}"
        )
    return LightningConfiguration(reference, file, roots, section, isinstance(nested, dict))


@dataclass(frozen=True)
class LightningConfiguration(FileAdapter):
    """The subcommand ``fit`` of LightningCLI with a configuration file."""

    reference: str
    file: Path
    roots: tuple[Path, ...]
    content: Mapping[str, Any] = field(repr=False)
    """Of the file, for ``fit``."""
    is_nested: bool
    """Whether the file has the configurations of several subcommands."""

    def __call__(self, config: Mapping[str, Any]) -> None:
        """Trains, and reports every validation. Raises what the user's classes raise, and ConfigurationError."""
        extra = [f"--trainer.{name}={value}" for name, value in device_arguments().items()]
        extra.append("--trainer.enable_checkpointing=true")  # `Report` is a checkpoint, the only one without others
        if (begun := resume()) is not None:
            extra.append(f"--ckpt_path={begun}")
        defaults = {"default_root_dir": str(trial_folder())} if in_trial() else {}
        self._run(FIT, config, extra, {**defaults, "callbacks": [Report()]})

    def _run(self, command: str, config: Mapping[str, Any], extra: Sequence[str], defaults: dict[str, Any]) -> Any:
        """LightningCLI, after it has run a subcommand."""
        arguments = [*self._arguments(command, ordered(flat(config))), *extra]
        with mock.patch.object(sys, "argv", sys.argv[:1]):  # else LightningCLI warns that it does not read them
            return _CommandLine(
                args=arguments,
                save_config_callback=None,
                trainer_defaults=defaults,
                parser_kwargs={"exit_on_error": False},
            )

    def _arguments(self, command: str, parameters: Sequence[tuple[str, Any]]) -> list[str]:
        source = yaml.safe_dump(dict(self.content)) if self.is_nested else str(self.file)
        return [command, f"--config={source}", *(argument(name, value) for name, value in parameters)]

    @functools.cached_property
    def module(self) -> ModuleType:
        """Holds ``evaluate`` if the user's module has a ``test_step``, which is looked up when it is asked for."""
        module = module_of(self.file)
        module.__getattr__ = self._optional  # type: ignore[method-assign]
        return module

    def _optional(self, name: str) -> Callable[..., Any]:
        if name == "evaluate" and self._can_test:
            return self._evaluate
        raise AttributeError(name)

    @functools.cached_property
    def _can_test(self) -> bool:
        """Whether the module has a ``test_step``; True if the file does not tell its class."""
        model = self.content.get("model")
        path = model.get("class_path") if isinstance(model, dict) else model
        if not isinstance(path, str) or "." not in path:
            return True
        module, _, name = path.rpartition(".")
        try:
            cls = import_attribute(f"{module}:{name}", self.roots)
        except InputError:  # `config_problems` reports it
            return True
        return getattr(cls, "test_step", None) is not LightningModule.test_step

    def _evaluate(self, config: Mapping[str, Any], checkpoint: Path, split: str) -> dict[str, float]:
        """Metrics of the model in ``checkpoint`` on ``split``, by the subcommand ``validate`` or ``test``."""
        with tempfile.TemporaryDirectory(prefix="tuner-lightning-") as folder:
            extra = [f"--ckpt_path={checkpoint / FILE_NAME}", "--trainer.logger=false"]
            done = self._run(_COMMANDS[split], config, extra, {"default_root_dir": folder})
        return {name: float(value) for name, value in done.trainer.callback_metrics.items() if value.numel() == 1}

    def config_problems(self, config: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
        """Reasons to refuse ``config``, found by LightningCLI's parser: (path of the parameter, message).

        The parser imports the user's classes, and makes none.
        """
        parameters = ordered(flat(config))
        with user_code(self.roots):
            if wrong := list(unknown([name for name, _ in parameters], list(self._known), self.file.name)):
                return wrong
            whole = self._refusal(parameters)
            if not whole:
                return []
            base = self._refusal([])
            alone = [(tuple(item[0].split(".")), self._refusal([item])) for item in parameters]
        found = [(path, text) for path, text in alone if text not in ("", base)]
        return found or [((), f"{self.file.name}: {whole}")]

    def _refusal(self, parameters: Sequence[tuple[str, Any]]) -> str:
        """Why the parser does not take the file with the ``parameters``; empty if it does."""
        try:
            self._parser.parse_args(self._arguments(FIT, parameters))
        except REFUSALS as error:
            return reason(error, self._known)
        return ""

    @functools.cached_property
    def _parser(self) -> Any:
        with user_code(self.roots):
            return new_parser(run=True)

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        """What LightningCLI makes of the file, by dotted keys; what it has without the file if it does not take it."""
        try:
            parsed = self._parser.parse_args(self._arguments(FIT, []))
        except REFUSALS:
            return {**dict(flat(self.content)), **vars(new_parser(run=False).get_defaults().as_flat())}
        return dict(vars(parsed[FIT].as_flat()))


class _CommandLine(LightningCLI):  # type: ignore[misc]
    """LightningCLI, whose parser tells what is wrong in the exception."""

    def parse_arguments(self, parser: Any, args: Any) -> None:
        try:
            super().parse_arguments(parser, args)
        except REFUSALS as error:
            raise ConfigurationError(reason(error, {})) from None

    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
        except ValueError as error:
            if isinstance(error.__cause__, Exception):  # what the class raised; jsonargparse puts it into a page
                raise error.__cause__ from None
            raise
