"""A Hydra configuration as a trainable: composed in each trial, with the trial's parameters as overrides.

Hydra runs the function as ``@hydra.main`` does without ``--multirun``: its output folder is the trial's, its logging
and its callbacks work, and `HydraConfig` holds the node ``hydra``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import hydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from tuner.errors import InputError, did_you_mean
from tuner.spec.configuration import flat
from tuner.spec.user_imports import find_file, import_attribute, user_code
from tuner.trainable.adapter import ConfigurationError, FileAdapter, KeyPath, module_of
from tuner.trainable.hydra_compose import COMPOSING, MISSING, REFUSALS, Source, plain, reason, without_hydra
from tuner.trainable.hydra_main import Main, main_of, mains_in, not_found
from tuner.trainable.hydra_overrides import Groups, Override, as_text
from tuner.trainable.hydra_sweep import space_of_sweep
from tuner.trainable.returned import ObjectiveError, named, objective_names
from tuner.training.reporting import counted_reports, get_checkpoint, in_trial, trial_folder, trial_id, trial_number

_TARGET = "_target_"

_OPTIONAL = {"evaluate": 2, "load_model": 2, "prepare": 1, "checkpoint_bytes": 1}
"""Functions beside the user's own that are called, and how many arguments each is given."""


def read_hydra(reference: str, config: str, function: str, roots: tuple[Path, ...]) -> HydraConfiguration:
    """The configuration file ``config`` with its function, which is imported and not called.

    ``function``: ``module:function`` or ``file.py:function``; empty: the one that the file belongs to. Raises
    InputError if there is no such file or function.
    """
    file = find_file(config, roots)
    if file.suffix != ".yaml":
        raise InputError(f"{reference}: Hydra reads files that end with .yaml: rename {file.name}")
    folder = next((root for root in roots if file.is_relative_to(root.resolve())), file.parents[1]).resolve()
    if function:
        found = import_attribute(function, roots)
        code = inspect.getsourcefile(inspect.unwrap(found)) if callable(found) else None
        mains = mains_in(Path(code).resolve()) if code else ()
        main = next((main for main in mains if main.name == function.rpartition(":")[2]), None)
    elif main := main_of(file, folder, reference):
        found = import_attribute(f"{main.file}:{main.name}", roots)
    else:
        found = hydra.utils.call
    read = HydraConfiguration(reference, file, _source(file, main), found)
    with user_code(roots):
        if found is hydra.utils.call and not read.has_target:
            raise not_found(file, folder, reference)
        if not _takes(found, 1):
            name = function or (f"{main.file.name}:{main.name}" if main else _TARGET)
            raise InputError(f"{reference}: {name} is not a function of one argument, the configuration")
    return read


def _source(file: Path, main: Main | None) -> Source:
    """The decorator's folder holds the config groups if it holds ``file``; else the folder of ``file`` does."""
    top = file.parent
    if main and main.folder and file.is_relative_to(main.folder):
        top = main.folder
    name = file.relative_to(top).with_suffix("").as_posix()
    return Source(top, name, main.file.stem if main else file.stem, main.version_base if main else None)


@dataclass(frozen=True)
class HydraConfiguration(FileAdapter):
    """A function of a composed configuration, called with the parameters that override it."""

    reference: str
    file: Path
    source: Source
    function: Callable[[Any], Any]
    metrics: tuple[str, ...] = ()
    """The objectives of the experiment."""
    _known: dict[tuple[str, ...], dict[str, Any] | str] = field(default_factory=dict, repr=False, compare=False)
    """What Hydra composed, or why it did not, by its overrides."""

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Composes the configuration, and calls the function with it.

        What the function returns counts, as in Hydra's sweeps, if it has reported nothing. Raises what it raises,
        ConfigurationError, and ObjectiveError.
        """
        with self.source.opened() as opened, counted_reports() as count:
            overrides = [*self._texts(opened, config), *_of_trial()]
            try:
                value = opened.run(self.source.name, self.function, overrides).return_value
            except COMPOSING as error:
                raise ConfigurationError(f"{self.file.name}: {reason(error)}") from None
            if value is None or count() or get_checkpoint() is not None:
                return None
            if isinstance(value, dict):
                return value
            try:
                return named(value, self.metrics, f"the function of {self.file.name}")
            except (TypeError, ValueError):
                kind = type(value).__name__
                raise ObjectiveError(
                    f"the function of {self.file.name} reports nothing and returns a {kind}: it must return "
                    f"{' and '.join(self.metrics)}, or call tuner.report"
                ) from None

    def reporting(self, required: Sequence[tuple[str, str]]) -> HydraConfiguration:
        """The same, where every report must hold the ``required`` metrics, each with its key in the experiment."""
        return replace(self, metrics=objective_names(required))

    @functools.cached_property
    def module(self) -> ModuleType:
        """Holds the optional functions beside the user's, which get the composed configuration."""
        module = module_of(self.file)
        theirs = None if self.function is hydra.utils.call else inspect.getmodule(inspect.unwrap(self.function))
        for name, count in _OPTIONAL.items():
            function = getattr(theirs, name, None)
            if inspect.isfunction(function) and _takes(function, count):
                setattr(module, name, self._composing(function))
        return module

    def _composing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def composed(config: Mapping[str, Any], *others: Any, **options: Any) -> Any:
            with self.source.opened() as opened:
                return function(without_hydra(self.source.composed(self._texts(opened, config))), *others, **options)

        return composed

    def _texts(self, opened: Any, config: Mapping[str, Any]) -> list[str]:
        return [override.text for override in Groups(opened.config_loader, self.source.name).overrides(config)]

    @property
    def has_target(self) -> bool:
        """Whether the configuration names at its top what is called with it."""
        with self.source.opened():
            found = self._compose(())
        return isinstance(found, str) or _TARGET in found  # `config_problems` reports an error

    def own_space(self) -> dict[str, Any] | None:
        """The search space of ``hydra.sweeper.params``; None if there is none. Raises InputError."""
        with self.source.opened() as opened:
            try:
                composed = opened.compose_config(self.source.name, [], RunMode.MULTIRUN, with_log_configuration=False)
                params = OmegaConf.select(composed, "hydra.sweeper.params")
            except REFUSALS as error:
                raise InputError(f"{self.file.name}: {reason(error)}") from None
            if not params:
                return None
            groups = {name for name in params if opened.config_loader.get_group_options(str(name).partition("@")[0])}
            return space_of_sweep(dict(params), groups, f"{self.file.name}: ")

    def config_problems(self, config: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
        """Reasons to refuse ``config``, found by composing the configuration: (path of the parameter, message)."""
        with self.source.opened() as opened:
            try:
                overrides = Groups(opened.config_loader, self.source.name).overrides(config)
                wrong = [(override.path, text) for override in overrides if (text := override.problem)]
            except REFUSALS as error:
                return [((), f"{self.file.name}: {reason(error)}")]
            return wrong or list(self._problems(overrides))

    def _problems(self, overrides: Sequence[Override]) -> Iterator[tuple[KeyPath, str]]:
        """Call it within `Source.opened`."""
        groups = tuple(override.text for override in overrides if override.options)
        base = self._compose(groups)
        if isinstance(base, str):
            yield (), f"{self.file.name}: {base}"
            return
        keys = [override for override in overrides if not override.options]
        unfit = {override.path: text for override in keys if (text := _unfit(override, base, self.file.name))}
        if unfit:
            yield from unfit.items()
            return
        composed = self._compose((*groups, *(override.text for override in keys)))
        if isinstance(composed, str):
            alone = [(key.path, self._compose((*groups, key.text))) for key in keys]
            found = [(path, text) for path, text in alone if isinstance(text, str)]
            yield from found or [((), f"{self.file.name}: {composed}")]
            return
        for name, value in flat(composed):
            if value == MISSING:
                missing = f"{self.file.name} requires it (???), but neither params nor search_space gives it"
                yield tuple(name.split(".")), missing

    def _compose(self, overrides: tuple[str, ...]) -> dict[str, Any] | str:
        """The content with these overrides, or why there is none."""
        if overrides not in self._known:
            try:
                self._known[overrides] = plain(self.source.composed(overrides))
            except REFUSALS as error:
                self._known[overrides] = reason(error)
        return self._known[overrides]


def _of_trial() -> list[str]:
    """The overrides that tie Hydra to the trial: its folder, and its number."""
    overrides = ["hydra.mode=RUN"]
    if in_trial():
        overrides.append(f"hydra.run.dir={as_text(str(trial_folder()))}")
        overrides += [f"hydra.job.id={as_text(trial_id())}", f"hydra.job.num={trial_number()}"]
    if os.environ.get("RANK", "0") != "0":  # the first process of the trial writes them
        overrides.append("hydra.output_subdir=null")
    return overrides


def _unfit(override: Override, base: Mapping[str, Any], file: str) -> str:
    """The reason why ``base`` has no place for the value of a key; empty if it has, or if only Hydra knows."""
    if override.key.startswith(("hydra.", "+", "~")):
        return ""
    node: Any = base
    for part in override.key.split("."):
        if not isinstance(node, Mapping):
            return ""
        if part not in node:
            return f"{file} has no such key; {did_you_mean(override.key, list(dict.fromkeys(_names(base))))}"
        node = node[part]
    if isinstance(node, Mapping) and node and not isinstance(override.value, Mapping | None):
        return f"is a group of keys in {file} ({', '.join(map(str, node))}), and no config group: name one of them"
    return ""


def _names(base: Mapping[str, Any]) -> Iterator[str]:
    """The keys, and before them the groups of keys that hold them."""
    for name, _ in flat(base):
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _takes(function: Callable[..., Any], count: int) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        inspect.signature(function).bind(*[None] * count)
        return True
    return False
