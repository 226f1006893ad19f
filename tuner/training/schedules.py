"""Learning-rate schedules with one signature, which continue to the bit and take a changed learning rate.

    schedule = make_schedule("cosine", optimizer, steps=epochs * steps_an_epoch, warmup=0.05)
    for epoch in range(finished + 1, epochs + 1):
        for batch in batches:
            ...
            optimizer.step()
            schedule.step()
        schedule.evaluated(validation_loss)     # only "plateau" heeds it

`tuner.training.checkpointing` restores neither the learning rate of an optimizer nor any other hyperparameter: these
belong to the configuration, which population based training changes. Most schedules of torch compute a learning rate
from the one before, and keep the first one in their state. A resumed training would start with a wrong learning rate,
and would undo the change. Here the learning rate of a group is the one of the configuration times a factor. The factor
is a function of the number of steps alone, for "plateau" also of the values.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

Kind = Literal["constant", "step", "cosine", "one_cycle", "plateau"]


class Schedule:
    """Sets the learning rates of an optimizer; `make_schedule` makes it.

    Args:
        optimizer: The optimizer; the learning rates that its groups have now are multiplied.
        factor: The factor for each number of finished steps.
        plateau: Gives the factor by which a plateau has reduced the learning rate, if any.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, factor: Callable[[int], float], plateau: ReduceLROnPlateau | None = None
    ) -> None:
        self._optimizer, self._factor, self._plateau = optimizer, factor, plateau
        self._base = [group["lr"] for group in optimizer.param_groups]
        self.done = 0
        self._apply()

    @property
    def factor(self) -> float:
        """The learning rates of the next step, divided by those of the configuration."""
        reduced = 1.0 if self._plateau is None else float(self._plateau.optimizer.param_groups[0]["lr"])
        return self._factor(self.done) * reduced

    def step(self) -> None:
        """Sets the learning rates for the next step: call it after each step of the optimizer."""
        self.done += 1
        self._apply()

    def evaluated(self, value: float) -> None:
        """Notes a metric, which only "plateau" heeds: call it after each evaluation.

        Args:
            value: The metric.
        """
        if self._plateau is not None:
            self._plateau.step(value)
            self._apply()

    def state_dict(self) -> dict[str, Any]:
        """Returns how far the schedule is, without its hyperparameters."""
        state: dict[str, Any] = {"done": self.done}
        if self._plateau is not None:
            seen = self._plateau.state_dict()
            state["plateau"] = {name: seen[name] for name in ("best", "num_bad_epochs", "cooldown_counter")}
            state["reduced"] = self._plateau.optimizer.param_groups[0]["lr"]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, and sets the learning rates.

        Args:
            state_dict: What `state_dict` returned for a schedule of the same kind.
        """
        self.done = int(state_dict["done"])
        if self._plateau is not None and "plateau" in state_dict:
            self._plateau.load_state_dict(dict(state_dict["plateau"]))
            self._plateau.optimizer.param_groups[0]["lr"] = state_dict["reduced"]
        self._apply()

    def _apply(self) -> None:
        factor = self.factor
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(float(base) * factor)
            else:
                group["lr"] = base * factor


def make_schedule(
    kind: Kind,
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    warmup: float = 0.0,
    final: float = 0.0,
    gamma: float = 0.1,
    drops: int = 3,
    rise: float = 0.3,
    patience: int = 5,
    mode: Literal["min", "max"] = "min",
) -> Schedule:
    """Makes a schedule of the learning rates that the groups of `optimizer` have.

    - "constant": the learning rate itself.
    - "step": times `gamma` at `drops` equally distant steps.
    - "cosine": half a cosine from the learning rate to `final` times it (I. Loshchilov and F. Hutter, 2017).
    - "one_cycle": a cosine up from 1/25 in `rise` of the steps, then one down to 1/250000, as torch's `OneCycleLR`
      without its change of momentum (L. Smith and N. Topin, 2018).
    - "plateau": times `gamma` when the metric has not improved for more than `patience` evaluations.

    Args:
        kind: One of the five.
        optimizer: Its learning rates are the largest of the schedule.
        steps: Steps of the optimizer in the whole training; after them the learning rate stays.
        warmup: The share of the steps in which the learning rate rises linearly from nearly 0, for all kinds but
            "one_cycle", which has a rise of its own. The rest of the schedule has the remaining steps.
        final: The last learning rate of "cosine", as a share of the first.
        gamma: The factor of "step" and "plateau".
        drops: How often "step" applies `gamma`.
        rise: The share of the steps in which the learning rate of "one_cycle" rises.
        patience: Evaluations without an improvement that "plateau" endures.
        mode: Whether "plateau" gets a metric to make small ("min") or large ("max").

    Returns:
        The schedule, with `step`, `evaluated`, `state_dict` and `load_state_dict`.

    Raises:
        ValueError: If the kind is unknown or a number is out of its range.

    Example:
        >>> import torch
        >>> from tuner.training.schedules import make_schedule
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = make_schedule("cosine", optimizer, steps=6, warmup=1 / 3)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(optimizer.param_groups[0]["lr"], 3))
        ...     optimizer.step()
        ...     schedule.step()
        >>> rates
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if kind not in get_args(Kind):
        raise ValueError(f"schedule: {kind!r}; allowed: {', '.join(get_args(Kind))}")
    rules = {
        "steps": (steps >= 1, steps, "at least 1"),
        "warmup": (0 <= warmup < 1, warmup, "in [0, 1)"),
        "final": (0 <= final <= 1, final, "in [0, 1]"),
        "gamma": (0 < gamma < 1, gamma, "between 0 and 1"),
        "drops": (drops >= 1, drops, "at least 1"),
        "rise": (0 < rise < 1, rise, "between 0 and 1"),
        "patience": (patience >= 0, patience, "at least 0"),
        "mode": (mode in ("min", "max"), repr(mode), "min or max"),
    }
    wrong = [f"{name}: {value}, must be {rule}" for name, (ok, value, rule) in rules.items() if not ok]
    if wrong:
        raise ValueError("; ".join(wrong))
    if kind == "one_cycle" and warmup:
        raise ValueError(f"warmup: {warmup}, but 'one_cycle' has a rise of its own; set `rise` instead")
    rising = round(warmup * steps)
    left = max(1, steps - rising)

    def after_warmup(number: int) -> float:
        if kind == "step":
            return float(gamma ** min(drops, number * (drops + 1) // left))
        if kind == "cosine":
            return final + (1 - final) * (1 + math.cos(math.pi * min(number, left) / left)) / 2
        return 1.0

    def factor(done: int) -> float:
        if kind == "one_cycle":
            return _one_cycle(done, steps, rise)
        return (done + 1) / rising if done < rising else after_warmup(done - rising)

    plateau = None
    if kind == "plateau":
        # Works on an optimizer of its own, whose learning rate is the factor.
        own = torch.optim.SGD([torch.zeros(())], lr=1.0)
        plateau = ReduceLROnPlateau(own, mode, factor=gamma, patience=patience)
    return Schedule(optimizer, factor, plateau)


def _one_cycle(done: int, steps: int, rise: float) -> float:
    """The factor of torch's OneCycleLR with its default values."""
    low, lowest = 1 / 25, 1 / 25 / 1e4
    top, last = rise * steps - 1, steps - 1
    if done <= top:
        return _cosine(low, 1.0, done / top if top else 1.0)
    return _cosine(1.0, lowest, min(1.0, (done - top) / (last - top)) if last > top else 1.0)


def _cosine(start: float, end: float, share: float) -> float:
    """From `start` to `end` in half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
