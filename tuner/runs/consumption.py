"""What the processes of a trial consumed: host memory, GPU memory, and the use of their GPUs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

GIB = 2**30
DIGITS = 3
"""Of a number of GiB, that is about one MiB: what many reports have in common is then kept once."""

SECONDS_DIGITS = 2
"""Of a number of seconds, for the same reason."""

PREFIX = "system/"
"""Of the names of their columns, so that none is taken for a user's metric. MLflow shows such metrics on a tab."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """Of all processes of a trial, up to one of its reports. None: it was not measured, as without a GPU.

    Example:
        >>> from tuner.runs.consumption import Consumption
        >>> Consumption(host_gib=1.0, peak_host_gib=2.0).after(Consumption(peak_host_gib=3.0)).peak_host_gib
        3.0
    """

    host_gib: float | None = None
    """Host memory at the report, over all its processes: without pages of files, which the kernel takes back."""
    peak_host_gib: float | None = None
    """Most resident host memory in all attempts so far, over all its processes."""
    gpu_gib: float | None = None
    """Allocated by torch at the report, on that of its GPUs where it is most."""
    peak_gpu_gib: float | None = None
    """Most memory that torch had allocated on one GPU, in all attempts so far."""
    peak_gpu_reserved_gib: float | None = None
    """Most memory that torch held on one GPU, its cache included, in all attempts so far."""
    gpu_use: float | None = None
    """Mean share of the time since the report before in which its GPUs computed, in per cent, whoever used them."""
    gpu_watts: float | None = None
    """Mean power of its GPUs together since the report before, in watts, whoever used them."""
    data_s: float | None = None
    """Seconds since the report before in which the training waited for a torch DataLoader."""
    checkpoint_s: float | None = None
    """Seconds since the report before in which it wrote its checkpoint to the run folder."""

    def named(self) -> dict[str, float]:
        """What was measured, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    def after(self, before: Consumption | None) -> Consumption:
        """This one, with the peaks of ``before`` where they are higher; ``before`` itself if it is the same."""
        if before is None:
            return self
        peaks = {name: _most((getattr(self, name), getattr(before, name))) for name in _PEAKS}
        merged = replace(self, **peaks)
        return before if merged == before else merged


NAMES = tuple(field.name for field in fields(Consumption))
COLUMNS = {f"{PREFIX}{name}": name for name in NAMES}
"""Of results.parquet, each with its name here."""

OF_TRIAL = ("peak_host_gib", "peak_gpu_gib", "gpu_use")
"""What trials.csv and the report have of each trial."""

_PEAKS = tuple(name for name in NAMES if name.startswith("peak_"))
_MEANS, _SECONDS = ("gpu_use", "gpu_watts"), ("data_s", "checkpoint_s")
_SUMS_OF_RANKS = ("host_gib", "peak_host_gib", "gpu_watts")


def consumption_of(values: Mapping[str, Any]) -> Consumption:
    """The consumption that a file holds by name. Raises ValueError for all but finite floats from 0 on."""
    for name, value in values.items():
        if name not in NAMES or type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
            raise ValueError(f"{name} is {value!r}, not what a trial consumed")
    return Consumption(**{name: float(value) for name, value in values.items()})


def of_ranks(ranks: Sequence[Consumption]) -> Consumption:
    """Of all processes of a trial together, each of which is a rank.

    Host memory is the sum, as the ranks of a node share it. GPU memory is that of the rank that has most, as each has
    its own GPU. Power is the sum, and the use the mean. Seconds are those of the first rank.
    """
    found: dict[str, float | None] = {}
    for name in NAMES:
        values = [value for rank in ranks if (value := getattr(rank, name)) is not None]
        if not values:
            found[name] = None
        elif name == "gpu_use":
            found[name] = round(sum(values) / len(values), 1)
        elif name in _SUMS_OF_RANKS:
            found[name] = round(sum(values), DIGITS)
        else:
            found[name] = max(values)
    return Consumption(**found)


def of_trial(reports: Iterable[tuple[float, Consumption | None]]) -> Consumption:
    """Of a whole trial, from its reports in order, each with the seconds that the trial had run.

    Memory is that at the last report. Peaks are over all of them. Use and power are means over the time. Seconds add
    up.
    """
    found: list[Consumption] = []
    before = 0.0
    sums, times = dict.fromkeys((*_MEANS, *_SECONDS), 0.0), dict.fromkeys((*_MEANS, *_SECONDS), 0.0)
    for seconds, told in reports:
        if told is not None:
            if not found or told is not found[-1]:
                found.append(told)
            passed = max(seconds - before, 0.0)
            for name in sums:
                if (value := getattr(told, name)) is not None:
                    sums[name] += value * passed if name in _MEANS else value
                    times[name] += passed
        before = seconds
    if not found:
        return Consumption()
    peaks = {name: _most(getattr(one, name) for one in found) for name in _PEAKS}
    means = {name: round(sums[name] / times[name], 1) if times[name] else None for name in _MEANS}
    spent = {name: round(sums[name], SECONDS_DIGITS) if times[name] else None for name in _SECONDS}
    return replace(found[-1], **peaks, **means, **spent)


def gib(size: float) -> float:
    """Bytes in GiB, rounded."""
    return round(size / GIB, DIGITS)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
