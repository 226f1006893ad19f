"""What a user of Ray Tune may name as the trainable, each kind as a plain function ``train(config)``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tuner.trainable.ray_classes import is_tune_class
from tuner.trainable.wrapped import unwrapped


def as_function(train: Any) -> Callable[[Any], Any]:
    """``train`` as a function of the configuration; one that is that already is returned as it is."""
    if is_tune_class(train):
        from tuner.trainable.class_trial import ClassTrial

        return ClassTrial(train)
    return unwrapped(train)


def class_of(function: Any) -> type | None:
    """The class behind the result of `as_function`; None if there is no class."""
    adapter = getattr(sys.modules.get("tuner.trainable.class_trial"), "ClassTrial", None)
    return function.cls if type(function) is adapter else None
