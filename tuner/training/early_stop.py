"""A trial that ends itself when it stops getting better."""

import math
from typing import Any, Literal


class PlateauStop:
    """Finds that a metric has not improved for `patience` values in a row.

    NaN is not an improvement. The state belongs into the checkpoint: see `state_dict`.

    Args:
        patience: So many values without an improvement end the training.
        min_delta: A value must be better than the best one by more than this.
        mode: "min" for a loss, "max" for an accuracy.

    Raises:
        ValueError: If a number is out of its range or the mode is unknown.

    Example:
        >>> from tuner.training.early_stop import PlateauStop
        >>> stop = PlateauStop(patience=2, mode="max")
        >>> [stop.update(accuracy) for accuracy in (0.5, 0.7, 0.6, 0.7)]
        [False, False, False, True]
    """

    def __init__(self, patience: int, min_delta: float = 0.0, mode: Literal["min", "max"] = "min") -> None:
        if patience < 1:
            raise ValueError(f"patience: {patience}, must be at least 1")
        if not 0 <= min_delta < math.inf:
            raise ValueError(f"min_delta: {min_delta}, must be 0 or more")
        if mode not in ("min", "max"):
            raise ValueError(f"mode: {mode!r}; allowed: min, max")
        self.patience, self.min_delta, self.mode = patience, min_delta, mode
        self.best: float | None = None
        self.waited = 0

    def update(self, value: float) -> bool:
        """Notes a value.

        Args:
            value: The metric of an epoch.

        Returns:
            Whether to stop.
        """
        if self._is_better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta

    def state_dict(self) -> dict[str, Any]:
        """Returns the best value and how many values came since, without the hyperparameters."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave.

        Args:
            state_dict: What `state_dict` returned.
        """
        self.best, self.waited = state_dict["best"], int(state_dict["waited"])
