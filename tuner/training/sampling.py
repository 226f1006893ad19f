"""Samplers for data sets whose classes are not equally frequent.

    sampler = make_sampler(labels, "balanced", generator=torch.Generator().manual_seed(config.seed))
    batches = DataLoader(data, 64, sampler=sampler)

`tuner.training.loading.loader` takes such a sampler, and gives it a seed for each epoch.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, Sampler, WeightedRandomSampler

Kind = Literal["uniform", "balanced", "weighted"]


def make_sampler(
    labels: Sequence[int] | Tensor,
    kind: Kind,
    *,
    generator: torch.Generator,
    num_samples: int | None = None,
    weights: Sequence[float] | Tensor | None = None,
) -> Sampler[int]:
    """Makes a sampler of the indices of a data set.

    - "uniform": every sample once, in random order; with more or fewer `num_samples`, as often as the others, nearly.
    - "balanced": drawn with replacement, every class with the same probability.
    - "weighted": drawn with replacement, a sample in proportion to the weight of its class. The default weight is the
      inverse square root of the class's frequency, which lies between the other two.

    Args:
        labels: The class of each sample, from 0.
        kind: "uniform", "balanced" or "weighted".
        generator: Draws the indices; save its state with the checkpoint.
        num_samples: Indices in an epoch; None for as many as there are labels.
        weights: A weight for each class, for "weighted" only.

    Returns:
        The sampler, for the argument `sampler` of a loader.

    Raises:
        ValueError: If the kind is unknown, if there are no labels, or if the weights do not fit.

    Example:
        >>> import torch
        >>> from tuner.training.sampling import make_sampler
        >>> labels = torch.tensor([0] * 900 + [1] * 100)
        >>> sampler = make_sampler(labels, "balanced", generator=torch.Generator().manual_seed(0))
        >>> bool(abs(labels[list(sampler)].float().mean() - 0.5) < 0.05)
        True
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind: {kind!r}; allowed: {', '.join(get_args(Kind))}")
    classes = torch.as_tensor(labels)
    if classes.ndim != 1 or len(classes) == 0 or classes.is_floating_point():
        raise ValueError(f"labels: shape {tuple(classes.shape)} of {classes.dtype}, must be a row of class numbers")
    if int(classes.min()) < 0:
        raise ValueError(f"labels: {int(classes.min())}, must be 0 or more")
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"num_samples: {num_samples}, must be at least 1")
    if weights is not None and kind != "weighted":
        raise ValueError(f"weights: of no use for {kind!r}; choose 'weighted'")
    count = len(classes) if num_samples is None else num_samples
    if kind == "uniform":
        return RandomSampler(range(len(classes)), num_samples=count, generator=generator)
    frequency = torch.bincount(classes.long())
    if weights is not None:
        of_class = _checked(torch.as_tensor(weights, dtype=torch.float64), frequency)
    else:
        of_class = frequency.double().clamp(min=1) ** (-1.0 if kind == "balanced" else -0.5)
    of_sample = of_class[classes.long()]
    return WeightedRandomSampler(of_sample.tolist(), count, generator=generator)


def _checked(weights: Tensor, frequency: Tensor) -> Tensor:
    """The weights of the classes, if they can be used."""
    if weights.shape != frequency.shape:
        raise ValueError(f"weights: {weights.numel()}, but the labels have {len(frequency)} classes")
    if not bool(((weights >= 0) & weights.isfinite()).all()):
        raise ValueError(f"weights: {weights.tolist()}, must be 0 or more")
    if float(weights[frequency > 0].sum()) == 0:
        raise ValueError(f"weights: {weights.tolist()}, one of a class with samples must be above 0")
    return weights
