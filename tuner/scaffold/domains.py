"""A domain to search for a hyperparameter, proposed from its name, its type and its default."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuner.scaffold.hyperparameters import UNKNOWN, Hyperparameter
from tuner.spec.space.grammar import DEFAULT, FORMS
from tuner.spec.values import is_number, to_inline_yaml

Use = Literal["search", "unsure", "fixed", "left"]
"""``unsure``: a domain that stands in a comment; ``fixed``: in ``params``; ``left``: the script's own default holds."""


@dataclass(frozen=True)
class Proposal:
    """What the experiment says of one hyperparameter."""

    hyperparameter: Hyperparameter
    use: Use
    domain: dict[str, list[Any]] | None = None
    """In the notation of an experiment file: ``{"uniform": [0, 0.5]}``."""
    why: str = ""

    @property
    def name(self) -> str:
        """The hyperparameter's."""
        return self.hyperparameter.name

    @property
    def entry(self) -> dict[str, Any]:
        """The domain with the script's own value as its default, if that lies in it."""
        if self.domain is None:
            return {}
        ((form, arguments),) = self.domain.items()
        default = self.hyperparameter.default
        if default is UNKNOWN or (FORMS[form].of != "list" and not is_number(default)):
            return self.domain
        domain = FORMS[form].make(tuple(arguments)) if FORMS[form].of == "list" else FORMS[form].make(*arguments)
        return {**self.domain, DEFAULT: default} if domain.contains(default) else self.domain

    @property
    def written(self) -> str:
        """`entry` as an experiment file has it, on one line."""
        return to_inline_yaml(self.entry) if self.entry else ""


_WORD = r"(?:^|_)(?:{})(?:_|$)"


def _names(*words: str) -> re.Pattern[str]:
    return re.compile(_WORD.format("|".join(words)))


_FIXED = _names(
    *("epochs?", "n_epochs", "max_epochs", "steps", "max_steps", "num_steps", "iterations?", "iters?", "max_iter"),
    *("total_timesteps", "seed", "random_state"),
)
_LEFT = _names(
    *("seed", "device", "devices", "gpus?", "cuda", "cpu", "mps", "n_?jobs", "workers?", "threads?", "world", "rank"),
    *("path", "dir", "directory", "folder", "file", "root", "output", "out", "save", "checkpoint", "ckpt", "resume"),
    *("log", "logs", "logging", "logdir", "logger", "interval", "every", "freq", "frequency", "print", "verbose"),
    *("debug", "quiet", "project", "run", "tag", "wandb", "mlflow", "tensorboard", "host", "port", "backend", "url"),
    *("dataset", "data", "split", "classes", "num_labels", "vocab", "channels_in", "in_channels", "out_channels"),
    *("image_size", "img_size", "input", "val", "valid", "eval", "test", "download", "dry_run", "amp", "fp16", "bf16"),
    *("compile", "precision", "dtype", "pin_memory", "config", "version", "name", "patience", "profile", "export"),
    *("prefetch", "micro_batch", "target", "local", "in", "train"),
)
_RATE = _names("lr", "learning_rate", "learningrate", "lrate")
_OF_SCHEDULE = _names("decay", "gamma", "schedule", "scheduler", "warmup", "step", "policy", "min", "final", "factor")
_PENALTY = _names("weight_decay", "wd", "l1", "l2", "reg", "reg_lambda", "reg_alpha", "regularization", "weightdecay")
_DROP = _names("dropout", "drop", "drop_rate", "drop_path", "p_drop", "droppath", "stochastic_depth")
_MOMENTUM = _names("momentum", "beta1", "beta_1", "ema", "gae_lambda")
_NEAR_ONE = _names("gamma", "discount", "beta2", "beta_2")
_SMALL_SHARE = _names("label_smoothing", "smoothing", "warmup_ratio", "warmup_fraction", "pct_start")
_SHARE = _names("prob", "probability", "p", "mixup", "cutmix", "subsample", "colsample_bytree", "colsample", "mask")
_WIDTH = _names(
    *("hidden", "width", "units", "neurons", "filters", "embed", "embedding", "dim", "d_model", "ffn", "channels"),
    *("features", "batch_size", "batch", "bs", "batchsize", "latent", "lora"),
)
_COUNT = _names("layers?", "depth", "blocks", "n_layers", "num_layers", "max_depth", "stages")
_NOT_FIXED = _names("log", "eval", "val", "save", "warmup", "accumulation", "accumulate", "every", "decay", "lr")
_OF_OTHERS = _names("val", "valid", "eval", "test", "in", "input", "out", "output", "log")
_TREES = _names("n_estimators", "estimators", "trees", "num_boost_round", "rounds", "leaves", "num_leaves")


def propose(one: Hyperparameter) -> Proposal:
    """What becomes of a hyperparameter."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", one.name).lower()
    if one.note:
        return Proposal(one, "left", why=one.note)
    if _FIXED.search(name) and not _NOT_FIXED.search(name):
        known = isinstance(one.default, int | float)
        return Proposal(one, "fixed" if known or one.required else "left", why="" if known else "no default")
    is_left = _is_left(name)
    found = None if is_left else _domain(name, one)
    if found is None and one.required:
        return Proposal(one, "fixed", why="required")
    if found is None:
        return Proposal(one, "left", why="" if is_left else "no rule knows it")
    domain, why, is_sure = found
    return Proposal(one, "search" if is_sure else "unsure", domain, why)


def _is_left(name: str) -> bool:
    if not _LEFT.search(name):
        return False
    return not (_RATE.search(name) or _DROP.search(name) or (_WIDTH.search(name) and not _OF_OTHERS.search(name)))


_Found = tuple[dict[str, list[Any]], str, bool]
"""The domain, why, and whether it is certain enough to be searched."""


def _domain(name: str, one: Hyperparameter) -> _Found | None:
    if len(one.choices) > 1:
        return {"choice": list(one.choices)}, "its choices", True
    if one.kind is bool:
        return _of_bool(one)
    if one.kind in (int, float):
        default = None if one.default is UNKNOWN or isinstance(one.default, bool | str) else one.default
        if default is not None and not math.isfinite(default):
            return None
        if one.kind is float or isinstance(default, float):
            return _of_float(name, default)
        return _of_int(name, default)
    return None


def _of_bool(one: Hyperparameter) -> _Found:
    why = "a boolean" if one.can_be_false else "whether the script takes a false is not known"
    return {"choice": [True, False]}, why, one.can_be_false


def _of_float(name: str, default: float | None) -> _Found | None:
    for names, domain, why in _FLOATS:
        if names.search(name) and not (names is _RATE and _OF_SCHEDULE.search(name)):
            found = domain(default)
            return None if found is None else (found, why, True)
    if default is not None and default > 0:
        return {"loguniform": [_round(default / 10), _round(default * 10)]}, "a guess from the default", False
    return None


def _decades(default: float | None, usual: float, most: float) -> dict[str, list[Any]] | None:
    """Two decades around the default, at most up to ``most`` unless the default is there already."""
    middle = default or usual
    if middle < 0:
        return None
    low, high = _round(middle / 10), min(_round(middle * 10), max(most, middle))
    return {"loguniform": [max(low, 1e-8), max(high, low * 10)]}


def _share(default: float | None, low: float, high: float) -> dict[str, list[Any]] | None:
    """From ``low`` to ``high``, or wider so that the default is in it."""
    if default is None or low <= default <= high:
        return {"uniform": [low, high]}
    return {"uniform": [0.0, high if default <= high else 0.99]} if 0 <= default < 1 else None


def _near_one(default: float | None) -> dict[str, list[Any]] | None:
    return {"uniform": [0.9, 0.999]} if default is None or 0.9 <= default < 1 else None


_FLOATS: Sequence[tuple[re.Pattern[str], Callable[[float | None], dict[str, list[Any]] | None], str]] = (
    (_RATE, lambda default: _decades(default, 1e-3, 1.0), "a learning rate"),
    (_PENALTY, lambda default: _decades(default, 1e-4, 1.0), "a penalty on weights"),
    (_DROP, lambda default: _share(default, 0.0, 0.5), "a dropout rate"),
    (_MOMENTUM, lambda default: _share(default, 0.8, 0.99), "a momentum"),
    (_NEAR_ONE, _near_one, "a discount near 1"),
    (_SMALL_SHARE, lambda default: _share(default, 0.0, 0.3), "a small share"),
    (_SHARE, lambda default: _share(default, 0.0, 0.99), "a probability"),
)
"""Rules for floats: which names they are for, the domain around a default, and what the name means."""


def _of_int(name: str, default: int | None) -> _Found | None:
    if default is None or default < 1:
        return None
    near: dict[str, list[Any]] = {"randint": [max(1, default - 2), default + 3]}
    wide: dict[str, list[Any]] = {"lograndint": [max(1, default // 4), default * 4 + 1]}
    if _COUNT.search(name):
        return near, "a number of layers", True
    if _TREES.search(name):
        return wide, "a number of trees or leaves", True
    if _WIDTH.search(name):
        return {"choice": powers_of_two(default)}, "a size, in powers of two", True
    return wide if default >= 10 else near, "a guess from the default", False


def powers_of_two(default: int) -> list[int]:
    """From a quarter to the double of the nearest power of two, which are 1 at least."""
    exponent = round(math.log2(default))
    return [2**power for power in range(max(0, exponent - 2), exponent + 2)]


def _round(value: float) -> float:
    """Two significant digits: 0.30000000000000004 is 0.3."""
    return float(f"{value:.2g}")
