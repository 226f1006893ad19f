"""How often the interval of an audit holds what early stopping cost, which a simulation knows.

    python tests/benchmarks/audit.py [--data FOLDER] [--part decision] [--search random] [--audit 0.1] [--grace 0]
        [--full-trials 20]

The families are those of ``tasks.py``, as for ``regret.py``. A search on 8 workers runs for the time of
``--full-trials`` full trials without early stopping. The truth is by how much the best stopped trial would have beaten
the best complete one. Both are in units of best minus median final value. ``--grace 0`` is ``grace_period: auto``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import argparse
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from regret import ASHA, Setting, asha, scale  # noqa: E402
from tasks import EPOCHS, FORMULAS, LCBENCH, names, task  # noqa: E402

from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.simulator import CurveFunction, simulate  # noqa: E402
from tuner.spec.configuration import Configuration  # noqa: E402
from tuner.visualization.audit import Interval, missed  # noqa: E402


def audited(setting: Setting, name: str, search: str, scheduler: dict[str, Any]) -> tuple[float, Interval] | None:
    """The truth, and the audit's interval, of one search; None if nothing was stopped."""
    measured = scale(setting, name)
    seen = task(name, setting.data).seen
    asked: list[Configuration] = []

    def noting(configurations: Sequence[Configuration]) -> Any:
        asked.extend(configurations)
        return seen.function(configurations)

    spec = TypeAdapter(AnyScheduler).validate_python(scheduler)
    trace = simulate(
        TypeAdapter(AnySearch).validate_python({"kind": search}),
        spec,
        CurveFunction(name, seen.space, seen.fidelities, noting),
        "max",
        workers=setting.workers,
        seed=zlib.crc32(name.encode()),
        seconds=measured.seconds,
    )
    rungs = spec.rungs()
    reached: dict[str, list[float]] = {}
    ended = []
    for event in trace.decisions:
        if event.what in ("continue", "pause", "stop", "complete") and event.value is not None:
            values = reached.setdefault(event.trial, [])
            if event.step > len(values):
                values.append(event.value)
        if event.what in ("stop", "complete"):
            ended.append(event.trial)
    curves = [reached[trial] for trial in ended]
    values = np.array([[c[rung - 1] if len(c) >= rung else np.nan for rung in rungs] for c in curves])
    complete = np.array([len(curve) == EPOCHS for curve in curves])
    levels = np.array([max((k for k, rung in enumerate(rungs) if rung <= len(c)), default=0) for c in curves])
    if complete.all():
        return None
    last = seen.function([asked[int(trial) - 1] for trial in ended])[0][:, -1]
    truth = max(0.0, float(last[~complete].max() - last[complete].max()))
    found, unit = missed(values, complete, levels), measured.best - measured.median
    return truth / unit, Interval(found.mean / unit, found.low / unit, found.high / unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", choices=("development", "decision", "report"), default="decision")
    parser.add_argument("--search", default="random")
    parser.add_argument("--audit", type=float, default=0.1)
    parser.add_argument("--grace", type=int, default=0)
    parser.add_argument("--full-trials", type=int, default=20)
    options = parser.parse_args()

    scheduler = (asha(options.grace) if options.grace else ASHA) | {"audit": options.audit}
    setting = Setting(options.data, 8, options.full_trials)
    families = (LCBENCH, *FORMULAS) if options.data else FORMULAS
    tasks = [name for family in families for name in names(family, options.part, options.data)]
    found = [audited(setting, name, options.search, scheduler) for name in tasks]
    pairs = [pair for pair in found if pair is not None]
    held = sum(interval.low - 1e-9 <= truth <= interval.high + 1e-9 for truth, interval in pairs)
    truths = np.array([truth for truth, _ in pairs])
    means, highs = (np.array([getattr(interval, name) for _, interval in pairs]) for name in ("mean", "high"))
    print(f"{held} of {len(pairs)} intervals hold the truth, {truths.mean():.3f} in the mean")
    print(f"estimate {means.mean():.3f} in the mean, upper end {np.median(highs):.2f} in the median")


if __name__ == "__main__":
    main()
