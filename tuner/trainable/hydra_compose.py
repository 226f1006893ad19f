"""Hydra's configuration, composed for one set of parameters, without a trace of it in Hydra's global state."""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

REFUSALS = (HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError, TypeError)
"""What Hydra raises if it cannot compose."""

COMPOSING = (ConfigCompositionException, MissingConfigException)
"""The part of `REFUSALS` that user code in a trial does not raise."""

MISSING = "???"


@dataclass(frozen=True)
class Source:
    """A primary configuration."""

    folder: Path
    """The folder that holds its config groups."""
    name: str
    """From there, without a suffix."""
    job: str
    version_base: str | None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Yields Hydra, which is the one of the process within, and puts back what was there before."""
        hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        GlobalHydra.instance().clear()
        try:
            with warnings.catch_warnings():  # of an old version_base: the user's own @hydra.main warns
                warnings.simplefilter("ignore")
                initialize_config_dir(str(self.folder), job_name=self.job, version_base=self.version_base)
            yield GlobalHydra.instance().hydra
        finally:
            GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra, config

    def composed(self, overrides: Sequence[str]) -> DictConfig:
        """The configuration with its node ``hydra``; call it within `opened`. Raises `REFUSALS`."""
        return compose(self.name, list(overrides), return_hydra_config=True)


def without_hydra(config: DictConfig) -> DictConfig:
    """What a function of the user's gets, while `HydraConfig` holds the rest."""
    HydraConfig.instance().set_config(config)
    config = copy.deepcopy(config)
    OmegaConf.set_readonly(config, False)
    with open_dict(config):
        del config["hydra"]
    return config


def plain(config: DictConfig) -> dict[str, Any]:
    """The content, interpolations as they are written, without the node ``hydra``."""
    found: Any = OmegaConf.to_container(config, resolve=False)
    return {str(name): value for name, value in found.items() if name != "hydra"}


def reason(error: BaseException) -> str:
    """Why Hydra does not compose, in one line without its search path."""
    texts = [_in_one_line(str(one)) for one in (error, error.__cause__) if one is not None]
    return ": ".join(filter(None, dict.fromkeys(texts))) or type(error).__name__


def _in_one_line(text: str) -> str:
    text = text.partition("Config search path:")[0].partition("\n    full_key:")[0].strip()
    text = re.sub(r"\n\t", ", ", re.sub(r":\s*\n\t", ": ", text))  # a list of options
    return "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
