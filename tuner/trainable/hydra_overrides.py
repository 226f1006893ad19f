"""A configuration of the search as Hydra's overrides: of keys, and of config groups."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import did_you_mean
from tuner.spec.configuration import flat

DEFAULTS = "defaults"
"""The group of parameters that choose config groups, as Hydra's defaults list does: for one whose keys are parameters
too, and so cannot be a parameter itself."""


@dataclass(frozen=True)
class Override:
    """One parameter."""

    parameter: str
    """Its dotted name."""
    key: str
    """Of the configuration, or the config group."""
    value: Any
    options: tuple[str, ...] = ()
    """What the config group holds; empty for a key."""
    appends: bool = False
    """Whether the group is not in the defaults list, so that it is added there."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.parameter.split("."))

    @property
    def text(self) -> str:
        """As on Hydra's command line. Raises ValueError if Hydra cannot take the value."""
        return f"{'+' if self.appends else ''}{self.key}={as_text(self.value)}"

    @property
    def problem(self) -> str:
        """The reason why Hydra takes no such value; empty if it does, or if only the configuration tells."""
        try:
            as_text(self.value)
        except ValueError as error:
            return str(error)
        chosen = self.value if isinstance(self.value, list | tuple) else [self.value]
        wrong = next((one for one in chosen if self.options and one is not None and one not in self.options), None)
        if wrong is None:
            return ""
        return f"the config group {self.key!r} has no {wrong!r}; {did_you_mean(str(wrong), self.options)}"


@dataclass(frozen=True)
class Groups:
    """The config groups of a primary configuration."""

    loader: Any
    """Hydra's ``ConfigLoader``."""
    config_name: str

    def overrides(self, config: Mapping[str, Any]) -> list[Override]:
        """Of each parameter; those of groups come first, outer ones before those that they hold."""
        groups, keys = list[Override](), list[Override]()
        for override in self._read(config):
            (groups if override.options else keys).append(override)
        groups.sort(key=lambda override: override.key.count("/"))
        known = [override.text for override in groups if not override.problem]
        for number, override in enumerate(groups):
            if override.key not in self._in_defaults(()) and override.text in known:
                outer = tuple(one.text for one in groups[:number] if not one.problem)
                groups[number] = replace(override, appends=override.key not in self._in_defaults(outer))
        return groups + keys

    def _read(self, config: Mapping[str, Any]) -> Iterator[Override]:
        for name, value in flat(config):
            parts = name.split(".")
            group = "/".join(parts[1:] if parts[0] == DEFAULTS else parts)
            chooses = value is None or isinstance(value, str) or _is_of_texts(value)
            options = self._options(group) if chooses else ()
            yield Override(name, group, value, options) if options else Override(name, name, value)

    def _options(self, group: str) -> tuple[str, ...]:
        return tuple(self.loader.get_group_options(group.partition("@")[0]))

    @functools.lru_cache(64)  # noqa: B019 - it lives as long as Hydra's loader
    def _in_defaults(self, chosen: tuple[str, ...]) -> frozenset[str]:
        """The groups of the defaults list, also those for which it leaves the choice open."""
        from hydra.types import RunMode

        found = self.loader.compute_defaults_list(self.config_name, list(chosen), RunMode.MULTIRUN)
        return frozenset(found.overrides.known_choices)


def _is_of_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)


def as_text(value: Any) -> str:
    """A value in the grammar of Hydra's overrides. Raises ValueError if it has none."""
    from hydra.core.override_parser.types import Quote, QuotedString

    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        text: str = QuotedString(value, Quote.single).with_quotes()
        return text
    if isinstance(value, Sequence):
        return f"[{','.join(map(as_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{as_text(one)}' for key, one in value.items())}}}"
    raise ValueError(f"is a {type(value).__name__}: Hydra takes numbers, texts, lists and mappings")
