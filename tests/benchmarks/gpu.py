"""Everything that needs a GPU to be seen: what works on one, and how fast. One GPU.

    python tests/benchmarks/gpu.py [--parts works sharing …] [--cifar10 FILE.npz] [--rehearse]

- ``works``: a process is handed on, and keeps data on the GPU. Memory runs out, a kernel fails, a trial leaves memory
  behind, and two processes share the GPU. A row that does not hold is printed in bold, and the exit status is 1.
- ``shipped``: each shipped experiment that can use a GPU trains two trials on it, and restores the best model.
- ``start``: trials an hour of a trainable that does next to nothing, each in a new process and handed on.
- ``sharing``: `trainables.cifar` on generated images, 1, 2, 4 and 8 trials at a time on the GPU. The ways take turns,
  in the other order in each second round. Trials an hour are those from the first one's start to the last one's end.
  Use and memory of the GPU are NVML's, every 2 s; median (lowest to highest).
- ``mps``: 8 trials at a time with NVIDIA's Multi-Process Service and without; a kernel that fails there.
- ``record``: trials of experiments/cifar_gpu.yaml on CIFAR-10 beside tests/benchmarks/cifar_alone.py.
- ``checkpoints``: what a checkpoint an epoch adds to it, saved at once and in the background.
- ``formats``: images a second of `trainables.cifar` by number format, width and batch.
- ``cifar10``: `trainables.cifar` on CIFAR-10 from a file of arrays: test accuracy and seconds.

``--rehearse`` runs the parts on the CPU with a GPU that Ray believes in, and the smallest sizes. It tells that the
script runs, and its numbers mean nothing.

docs/how-to/use-your-gpu-fully.md has what it found. On an H100 or H200, ``formats`` takes 115 s, ``cifar10`` 76 s,
``works`` 148 s, and with one round ``sharing`` 169 s and ``start`` 82 s. ``shipped``, ``record`` (over 215 s), ``mps``
(over 105 s), ``checkpoints``, ``share`` and two rows of ``works`` (stacked models, a state saved beside the training)
have not run to their end on a GPU. On a machine that has just been started, the first import of each framework takes
most of a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gpu_bench import GIB, TRIALS, Bench, quiet  # noqa: E402
from gpu_works import works  # noqa: E402

from tuner import ResultSet, restore_best, run  # noqa: E402
from tuner.doctor.installation import needs, packages  # noqa: E402
from tuner.errors import TunerError  # noqa: E402
from tuner.execution.gpus import READ_EVERY_S, Gpus  # noqa: E402

SHARES = (1.0, 0.5, 0.25, 0.125)


class Watched:
    """Within: notes the first GPU's use (%) and memory (GiB)."""

    def __init__(self) -> None:
        self.use: list[int] = []
        self.most_gib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        gpus = Gpus()
        while not self._over.wait(READ_EVERY_S):
            for gpu in gpus.read()[:1]:
                self.use.append(gpu.use)
                self.most_gib = max(self.most_gib, gpu.used_bytes / GIB)


def shipped(bench: Bench) -> None:
    """Each shipped experiment that may use a GPU, two short trials; then the best model again."""
    print("| experiment | expected | found |\n|---|---|---|")
    for file in sorted((ROOT / "experiments").glob("*.yaml")):
        document = yaml.safe_load(file.read_text())
        if document["resources"].get("gpu") == "auto":
            try:
                found, is_so = _trained(bench, document)
            except TunerError as error:  # a library that it needs is not installed
                found, is_so = str(error).splitlines()[0], False
            bench.holds(f"`{file.stem}`", "completed, on the GPU if one is enough; the best one again", found, is_so)


def _trained(bench: Bench, document: dict[str, Any]) -> tuple[str, bool]:
    """What two trials of an experiment came to, in words, and whether all is as it should be."""
    name = document.pop("name")
    space = document["search_space"]
    params = {"epochs": 1 if bench.rehearsed else 2} | ({"dataset": "shapes10"} if "cifar" in name else {})
    document |= {
        "params": document["params"] | params,
        "search_space": str(ROOT / space) if isinstance(space, str) else space,
        "search": {"kind": "random", "seed": 0},
        "scheduler": {"kind": "fifo"},
        "budget": {"trials": 1 if bench.rehearsed else 2},
        "tracking": {},
        # what divides a model needs a GPU for each process, as NCCL refuses to share one
        "resources": document["resources"] | {"gpu": int("workers" not in document["resources"])},
    }
    begun = time.perf_counter()
    results = run(document, storage=bench.storage, name=f"{name}-{time.time_ns()}", say=quiet)
    words = [f"{results.count('completed')} completed in {time.perf_counter() - begun:.0f} s"]
    peaks = [trial.consumption.peak_gpu_gib for trial in results.trials]
    words.append("GPU memory " + ", ".join("none" if peak is None else f"{peak:.2f} GiB" for peak in peaks))
    words += [str(failure) for trial in results.trials for failure in trial.failures[:1]]
    on_cpu = bench.rehearsed or not document["resources"]["gpu"]
    is_so = results.count("completed") == len(results.trials) and (on_cpu or all(peaks))
    if results.best is not None:
        best = restore_best(results)
        apart = max(
            (abs(value - float(best.recorded[name])) for name, value in (best.validation or {}).items()), default=0
        )
        words.append(f"the best one again: {apart:.1e} apart")
        is_so = is_so and apart < 1e-3
    return "; ".join(words), is_so


def start(bench: Bench) -> None:
    """A trial that does nothing, in a new process and handed on."""
    count = 2 if bench.rehearsed else 8
    rates: dict[bool, list[float]] = {True: [], False: []}
    firsts: dict[bool, list[float]] = {True: [], False: []}
    for number in range(bench.rounds):
        for fresh in (True, False) if number % 2 else (False, True):
            results = bench.run(
                f"{TRIALS}:begins",
                {"x": {"grid_search": list(range(count))}},
                resources={"cpu": 1, "gpu": 1, "fresh_process": fresh},
            )
            rates[fresh].append(count / results.provenance["elapsed_s"] * 3600)
            metrics = [trial.reports[-1].metrics for trial in results.trials if trial.reports]
            firsts[fresh] += [one["seconds_to_first_result"] for one in metrics]
    print("| process | trials an hour | seconds to the first result of the GPU |\n|---|---|---|")
    for fresh, name in ((True, "a new one each"), (False, "handed on")):
        print(f"| {name} | {spread(rates[fresh])} | {spread(firsts[fresh])} |")
    print(f"\nratio {spread([a / b for a, b in zip(rates[False], rates[True], strict=True)])}")


def sharing(bench: Bench) -> None:
    """1, 2, 4 and 8 trials at a time."""
    trials, epochs = (2, 1) if bench.rehearsed else (16, 6)

    rows: dict[float, list[tuple[float, float, float]]] = {share: [] for share in SHARES}
    for number in range(bench.rounds):
        for share in SHARES if number % 2 == 0 else reversed(SHARES):
            with Watched() as gpu:
                results = _shapes(bench, trials, epochs, gpu=share)
            assert results.count("completed") == trials
            use = statistics.mean(gpu.use) if gpu.use else float("nan")
            rows[share].append((trials / results.provenance["elapsed_s"] * 3600, use, gpu.most_gib))
            print(share, *rows[share][-1], file=sys.stderr, flush=True)
    print("| resources | trials an hour | ratio | GPU busy (%) | GPU memory at most (GiB) |\n|---|---|---|---|---|")
    for share in SHARES:
        ratios = [mine[0] / whole[0] for mine, whole in zip(rows[share], rows[1.0], strict=True)]
        rate, use, memory = (spread(column) for column in zip(*rows[share], strict=True))
        print(f"| `gpu: {share:g}` | {rate} | {spread(ratios)} | {use} | {memory} |")


def share(bench: Bench) -> None:
    """What `gpu: share` measures and chooses."""
    print(_shapes(bench, 8, 1 if bench.rehearsed else 6, gpu="share").notices[-1])


def _shapes(bench: Bench, trials: int, epochs: int, **resources: Any) -> ResultSet:
    """A random search of `trainables.cifar` on generated images."""
    return bench.run(
        "trainables.cifar:train",
        {"lr": {"loguniform": [0.05, 0.5]}},
        params={"dataset": "shapes10", "epochs": epochs},
        objective={"metric": "val_accuracy", "mode": "max"},
        search={"kind": "random", "seed": 0},
        budget={"trials": trials},
        resources={"cpu": 1, **resources},
    )


def mps(bench: Bench) -> None:
    """Eight trials at a time with MPS and without, in turn; then what a failing kernel does to the trials beside it."""
    trials, epochs = (2, 1) if bench.rehearsed else (16, 6)
    parts = [0.125]
    rates: dict[tuple[float, bool], list[float]] = {(part, used): [] for part in parts for used in (False, True)}
    for number in range(bench.rounds):
        for part, used in sorted(rates, reverse=number % 2 == 1):
            results = _shapes(bench, trials, epochs, gpu=part, mps=used and not bench.rehearsed)
            assert results.count("completed") == trials, [str(one.failures) for one in results.trials]
            rates[part, used].append(trials / results.provenance["elapsed_s"] * 3600)
            print(part, used, rates[part, used][-1], file=sys.stderr, flush=True)
    print("| resources | trials an hour | with `mps: true` | ratio |\n|---|---|---|---|")
    for part in parts:
        ratios = [a / b for a, b in zip(rates[part, True], rates[part, False], strict=True)]
        print(f"| `gpu: {part:g}` | {spread(rates[part, False])} | {spread(rates[part, True])} | {spread(ratios)} |")
    if bench.rehearsed:
        return
    results = bench.run(
        f"{TRIALS}:breaks_beside",
        {"x": {"grid_search": [0, 1, 2]}},
        failures={"retries": 2},
        resources={"cpu": 1, "gpu": 0.25, "mps": True},
    )
    print("\n| trial | status | failures |\n|---|---|---|")
    for trial in results.trials:
        print(f"| {trial.config['x']} | {trial.status} | {'; '.join(f'{f.kind}: {f}' for f in trial.failures)} |")


def record(bench: Bench) -> None:
    """Trials of experiments/cifar_gpu.yaml beside the stand-alone script, then two and four at a time."""
    if bench.cifar10 is None:
        print("not measured: no --cifar10")
        return
    from trainables import cifar

    document = yaml.safe_load((ROOT / "experiments/cifar_gpu.yaml").read_text())
    params = document["params"] | {"dataset": f"npz:{bench.cifar10}"}
    params |= {"epochs": 2, "width": 4, "compile": False, "report_every": 1} if bench.rehearsed else {}
    params.pop("offline_dataset")
    count = 2 if bench.rehearsed else 6
    print("| | seconds | test accuracy | trials an hour |\n|---|---|---|---|", flush=True)
    alone: list[tuple[float, float]] = []
    found: list[ResultSet] = []
    for number in range(bench.rounds):
        if not bench.rehearsed:
            alone += _alone(bench.cifar10, params["epochs"], count - 1)
            print(f"| stand-alone script | {spread([a for a, _ in alone])} | {spread([b for _, b in alone])} | |")
        found.append(_recorded(bench, params, range(count * number, count * (number + 1)), 1))
        trials = [trial for results in found for trial in results.trials[1:]]  # the first one compiles
        gaps = [b - a for results in found for a, b in pairwise(_ends(results))]
        rate = spread([3600 / gap for gap in gaps])
        print(f"| trial | {spread([trial.reports[-1].seconds for trial in trials])} | | {rate} |", flush=True)
    for part in (0.5, 0.25):
        at_once, trials_at_once = round(1 / part), 2 if bench.rehearsed else round(3 / part)
        ends = _ends(_recorded(bench, params, range(trials_at_once), part))[at_once - 1 :]  # the first ones compile
        rate = f"{(len(ends) - 1) / max(ends[-1] - ends[0], 1e-9) * 3600:.4g}" if len(ends) > 1 else "nan"
        print(f"| {at_once} trials at a time | | | {rate} |", flush=True)
    scores = []
    for results in found:
        for trial in results.trials:
            config = cifar.Config(**results.full_config(trial))
            folder = Path(results.folder.path, trial.reports[-1].checkpoint or "")
            scores.append(cifar.evaluate(config, folder)["test_accuracy"])
    print(f"| trial | | {spread(scores)} | |", flush=True)


def _recorded(bench: Bench, params: dict[str, Any], seeds: Sequence[int], part: float) -> ResultSet:
    """Trials that differ by their seed, each on a part of the GPU."""
    return bench.run(
        "trainables.cifar:train",
        {"seed": {"grid_search": list(seeds)}},
        params=params,
        objective={"metric": "val_accuracy", "mode": "max"},
        resources={"cpu": 1, "gpu": part},
        checkpoints={"keep_trials": len(seeds)},
    )


def _ends(results: ResultSet) -> list[float]:
    """When its trials made their last reports, in the order of time."""
    return sorted(trial.reports[-1].timestamp for trial in results.trials)


def _alone(file: Path, epochs: int, runs: int) -> list[tuple[float, float]]:
    """Seconds and test accuracy of each run of the stand-alone script but the first, which compiles."""
    command = [sys.executable, str(ROOT / "tests/benchmarks/cifar_alone.py"), str(file)]
    done = subprocess.run([*command, "--runs", str(runs), "--epochs", str(epochs)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    print(done.stdout, file=sys.stderr, flush=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(float(seconds), float(accuracy)) for name, seconds, accuracy in rows if name != "compiled"]


def formats(bench: Bench) -> None:
    """Images a second of the small network by format."""
    grid = {
        "precision": {"grid_search": ["fp32", "bf16"]},
        "width": {"grid_search": [8] if bench.rehearsed else [32, 128]},
        "batch_size": {"grid_search": [128] if bench.rehearsed else [128, 1024]},
    }
    results = bench.run(
        "trainables.cifar:train",
        grid,
        params={"dataset": "shapes10", "epochs": 1 if bench.rehearsed else 4},
        objective={"metric": "val_accuracy", "mode": "max"},
    )
    print("| width | batch | format | images a second, best epoch | GPU memory (GiB) |\n|---|---|---|---|---|")
    for trial in sorted(results.trials, key=lambda one: [one.config[key] for key in ("width", "batch_size")]):
        c = trial.config
        rate = max((report.metrics["images_per_second"] for report in trial.reports), default=float("nan"))
        print(
            f"| {c['width']} | {c['batch_size']} | {c['precision']} | {rate:,.0f} | {trial.consumption.peak_gpu_gib} |"
        )


def checkpoints(bench: Bench) -> None:
    script = [sys.executable, str(ROOT / "tests/benchmarks/background_saving.py"), "--rounds", str(bench.rounds)]
    sizes = ["--sizes", "1", "--epochs", "2"] if bench.rehearsed else ["--sizes", "10", "100", "1000"]
    print(subprocess.run([*script, *sizes], check=True, capture_output=True, text=True).stdout, flush=True)


def cifar10(bench: Bench) -> None:
    """Accuracy on the test images and seconds."""
    if bench.cifar10 is None:
        print("not measured: no --cifar10")
        return
    widths = [8] if bench.rehearsed else [32, 64]
    results = bench.run(
        "trainables.cifar:train",
        {"width": {"grid_search": widths}, "seed": {"grid_search": [0] if bench.rehearsed else [0, 1]}},
        params={"dataset": f"npz:{bench.cifar10}", "epochs": 1 if bench.rehearsed else 10, "batch_size": 512},
        objective={"metric": "val_accuracy", "mode": "max"},
        checkpoints={"keep_trials": 10},
    )
    from trainables import cifar

    print("| width | test accuracy | seconds of a trial | images a second |\n|---|---|---|---|")
    for trial in results.trials:
        last = trial.reports[-1]
        config = cifar.Config(**results.full_config(trial))
        score = cifar.evaluate(config, Path(results.folder.path, last.checkpoint or ""))
        rate = statistics.median(report.metrics["images_per_second"] for report in trial.reports)
        print(f"| {config.width} | {score['test_accuracy']:.4f} | {last.seconds:.1f} | {rate:,.0f} |")


PARTS: dict[str, Callable[[Bench], None]] = {
    "formats": formats,
    "checkpoints": checkpoints,
    "cifar10": cifar10,
    "record": record,
    "sharing": sharing,
    "mps": mps,
    "share": share,
    "start": start,
    "works": works,
    "shipped": shipped,
}
"""What takes longest on a machine that has just been started comes last: it imports every framework."""


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cifar10", type=Path, help="a file of arrays x_train, y_train, x_test, y_test")
    parser.add_argument("--rounds", type=int, default=2, help="in which the ways of a comparison take turns")
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    if not given.rehearse and not Gpus().read():
        sys.exit("error: NVIDIA's driver tells of no GPU here; --rehearse runs the script without one")
    asked = needs()
    if asked and (found := packages(asked)).level == "error":  # known before the GPU's time is spent
        print(f"NOTICE: {found.found}", file=sys.stderr)
    import ray
    import torch

    from tuner.execution.auth import make_token

    make_token()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init("local", num_cpus=max(2, os.cpu_count() or 1), num_gpus=1, include_dashboard=False, log_to_driver=False)
    name = "CPU" if given.rehearse else torch.cuda.get_device_name(0)
    print(f"{name}, {os.cpu_count()} CPU cores, torch {torch.__version__}, ray {ray.__version__}")
    with tempfile.TemporaryDirectory() as storage:
        bench = Bench(
            Path(storage),
            given.rehearse,
            1 if given.rehearse else given.rounds,
            given.cifar10 and given.cifar10.resolve(),
        )
        for part in given.parts:
            begun = time.perf_counter()
            print(f"\n## {part}\n", flush=True)
            PARTS[part](bench)
            print(f"\n({time.perf_counter() - begun:.0f} s)", flush=True)
    if bench.broken:
        sys.exit(f"error: does not hold on this GPU: {', '.join(bench.broken)}")


if __name__ == "__main__":
    main()
