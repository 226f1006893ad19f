"""Objects that cannot run as a trainable: which kind each is, and what to do instead."""

from __future__ import annotations

import inspect
from typing import Any

from tuner.trainable.ray_classes import is_tune_class, tune_class

_FUNCTION = "write def train(config), which ends with ray.tune.report({...})"

_KINDS = (
    (
        "ray.train",
        ("DataParallelTrainer", "BaseTrainer"),
        "a Trainer of Ray Train, which Ray Tune takes no more: write def train(config) that makes it with "
        "train_loop_config=config, calls fit(), and reports result.metrics with ray.tune.report",
    ),
    ("ray.tune", ("Tuner",), "a whole search of Ray Tune: name the function or class that it runs"),
    ("ray", ("RemoteFunction", "ActorClass"), "remote in Ray: remove @ray.remote, each trial has its own process"),
    ("torch", ("Module",), "a model of torch: write def train(config) that makes it, trains it, and reports"),
    ("sklearn", ("BaseEstimator",), "an estimator of scikit-learn: write def train(config) that fits it, and reports"),
)
"""(package, names of its classes, what such an object is and the remedy)."""


def unsuitable(train: Any) -> str | None:
    """The reason why ``train`` is not a trainable, to follow its name in a message; None if it may be one."""
    kind = type(train)
    is_class = issubclass(kind, type)
    bases = type.__dict__["__mro__"].__get__(train if is_class else kind)
    for package, names, remedy in _KINDS:
        for base in bases:
            if base.__name__ in names and f"{base.__module__}.".startswith(f"{package}."):
                name = train.__name__ if is_class else kind.__name__
                return f"is {'the class ' if is_class else ''}{name}, {remedy}"
    if issubclass(kind, str):
        return f"is a text: a name that is registered with Ray is unknown here; name the function: {_FUNCTION}"
    base = tune_class()
    if base is not None and base in bases and not is_class:
        return f"is an object of the class {kind.__name__}: name the class itself"
    if is_class and not is_tune_class(train):
        return f"is a class that does not derive from ray.tune.Trainable: derive it, or {_FUNCTION}"
    if base is not None and is_class and train.step is base.step:
        return f"is the class {train.__name__}, which has no step(): write one, which returns the metrics of one step"
    if inspect.iscoroutinefunction(train) or inspect.isasyncgenfunction(train):
        return "is an async function, which nothing here awaits: write def train(config), without async"
    if not callable(train):
        return f"is a {kind.__name__}, not a function or a ray.tune.Trainable: {_FUNCTION}"
    return None
