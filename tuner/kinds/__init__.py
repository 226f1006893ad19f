"""What a user of Ray Tune may name as the trainable, each kind as a plain function ``train(config)``.

One module a kind. None of them imports Ray before the user's own module has done so: ``validate`` needs no Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.kinds.classes import is_tune_class
from tuner.kinds.wrapped import unwrapped


def as_function(train: Any) -> Callable[[Any], Any]:
    """``train`` as a function of the configuration; one that is that already is returned as it is."""
    if is_tune_class(train):
        from tuner.kinds.class_trial import ClassTrial

        return ClassTrial(train)
    function: Callable[[Any], Any] = unwrapped(train)
    return function
