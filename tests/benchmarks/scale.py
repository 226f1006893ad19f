"""What a search of 10^5 trials and 10^6 reports costs its driver, a `resume` of it, and its report page.

    python tests/benchmarks/scale.py [--trials 100000] [--no-browser]

Each part runs in a process of its own, on the real recorder, journal, tables, snapshot, random search and ASHA (rungs
at 5 and 15 epochs, max_t 45: 11 reports a trial), with 8 trials at a time. Stand-ins take the place of Ray's trials
alone, and the checkpoints that are reported are not there. No part waits for anything but the disk.

- controller: what the driver keeps of each trial on Ray's own control loop, over the last three quarters of 2,000
  trials whose processes are stand-ins (`tests.faults.stand_ins`). Needs Ray; only with --controller.
- search: its driver, which dies with 8 trials running.
- take up: what `resume` does before Ray starts, and what the driver writes when the search ends.
- requests: what read_stored_search and `Recorder.begin` ask of an object store that holds the same journal.
- page: the report of the run, written, and opened in headless Chromium.

2 busy cores, one run each. controller: 6.9 kB a trial (29.9 before ended trials were released). 100,000 trials with
1,160,240 reports: 123 µs of CPU a report, 0.88 GB; no call of the driver took more than 0.65 s of CPU. The journal has
411 MB. resume with a snapshot 36 s, about 205 requests; without one 55 s (read_stored_search 28, recover 18), 1.15 GB.
The end writes for 20 s, 1.47 GB. page: 84 s of CPU, 6.4 MB, opened in 4.7 s (2.4 of CPU).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

WORKERS = 8
SPEC: dict[str, Any] = {
    "trainable": f"{ROOT}/tests/faults/toy.py:quadratic",
    "search_space": {
        "x": {"uniform": [0, 1]},
        "lr": {"loguniform": [1e-5, 1]},
        "layers": {"randint": [1, 9]},
        "optimizer": {"choice": ["sgd", "adamw"]},
    },
    "objective": {"metric": "score", "mode": "max"},
    "search": {"kind": "random", "seed": 1},
    "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 45, "grace_period": 5, "reduction_factor": 3},
    "resources": {"gpu": 0, "max_concurrent_trials": WORKERS},
}


class Longest:
    """Processor time that each method of an object took at most, and how often it took more than half a second."""

    def __init__(self, inner: Any, names: tuple[str, ...]) -> None:
        self.seconds: dict[str, float] = {}
        self.long: Counter[str] = Counter()
        for name in names:
            setattr(inner, name, self._timed(name, getattr(inner, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            begun = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                spent = time.thread_time() - begun
                self.seconds[name] = max(self.seconds.get(name, 0.0), spent)
                self.long[name] += spent > 0.5

        return timed


class Counted:
    """A file system that counts what is asked of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[name] += 1
            return found(*arguments, **options)

        return counted


def rss() -> float:
    """The most memory this process had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def folder_of(path: Path) -> Any:
    from tuner.storage.folder import RunFolder

    return RunFolder.at(path)


def recorder_of(begun: Any, plan: Any) -> Any:
    from tuner.execution.recorder import Recorder
    from tuner.runs.journal import JournalWriter
    from tuner.search.control import SearchControl

    journal = JournalWriter(begun.results.folder)
    made = Recorder(begun, journal, plan.spec.scheduler, plan.spec.checkpoints, SearchControl(), [])
    made.hosts._nodes["00"], made.hosts._of_node["node"] = "node", "host"
    return made


def plan_of(trials: int) -> Any:
    from tuner.experiment.reader import load_experiment
    from tuner.plan.cluster import Cluster, Node
    from tuner.plan.planner import make_plan

    machine = Cluster((Node("a", {"CPU": 8.0, "memory": 8 * 2.0**30}),))
    return make_plan(load_experiment({**SPEC, "budget": {"trials": trials}}, []), machine)


def search(path: Path, trials: int) -> dict[str, Any]:
    """A driver that dies when all but the last trials have ended."""
    from tuner.runs.provenance import resolved_spec, write_experiment
    from tuner.runs.results import ResultSet
    from tuner.schedulers.base import Decision
    from tuner.search.new_state import new_state
    from tuner.search.recovery import RecoveredSearch
    from tuner.search.usage import usage_of

    plan = plan_of(trials)
    folder = folder_of(path)
    folder.create()
    results = ResultSet(folder, resolved_spec(plan, {}), {"seed": 1, "slots": WORKERS, "trials": trials})
    write_experiment(results)
    results.save()
    recorder = recorder_of(RecoveredSearch(results, new_state(plan, []), usage_of(results), 0.0), plan)
    recorder._journal.append("began", spec=results.spec, provenance=results.provenance)
    handled = ("added", "on_trial_start", "on_trial_result", "on_trial_complete", "on_step_end")
    longest = Longest(recorder, handled)
    actor = SimpleNamespace(ray_actor=SimpleNamespace(_actor_id=b"\0"))
    rng, number, reports = random.Random(0), 0, 0
    running: list[Any] = []
    at: dict[str, int] = {}
    begun, cpu = time.perf_counter(), time.process_time()
    while True:
        while len(running) < WORKERS and number < trials:
            number += 1
            config = recorder.state.suggest(f"{number:08x}")
            trial = SimpleNamespace(trial_id=f"{number:08x}", config=config, temporary_state=actor)
            recorder.added(trial)
            recorder.on_trial_start(0, [], trial)
            running.append(trial)
            at[trial.trial_id] = 0
        if number == trials and len(running) < WORKERS:
            break
        for trial in list(running):
            at[trial.trial_id] = step = at[trial.trial_id] + 1
            score = -((trial.config["x"] - 0.3) ** 2) - 1 / step + rng.gauss(0, 0.01)
            metrics = {"epoch": step, "score": score, "loss": -score, "accuracy": 1 / (1 - score)}
            rays = {"training_iteration": step, "time_total_s": 1.5 * step, "timestamp": int(time.time())}
            rays |= {"checkpoint_dir_name": f"checkpoint_{step:06}", "done": False, "hostname": "host", "pid": 1}
            decision = recorder.state.report(trial.trial_id, step, metrics)
            recorder.set_decision(trial.trial_id, decision)
            recorder.on_trial_result(0, [], trial, metrics | rays)
            reports += 1
            if decision is Decision.STOP:
                recorder.on_trial_complete(0, [], trial)
                running.remove(trial)
                del at[trial.trial_id]
            recorder.on_step_end(0, [])
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    recorder._journal.close()
    return {
        "trials": number,
        "reports": reports,
        "seconds": seconds,
        "CPU µs a report": 1e6 * cpu / reports,
        "peak RSS (GB)": rss(),
        "longest pause (CPU s), by method": longest.seconds,
        "pauses above 0.5 s": +longest.long,
        "journal (MB)": (path / "journal.jsonl").stat().st_size / 1e6,
    }


def taken_up(folder: Any, trials: int) -> tuple[Any, dict[str, float]]:
    """The recorder of a search that is taken up as `resume` does it, and the seconds of each step."""
    from tuner.runs.loading import load_summary
    from tuner.search.new_state import new_state
    from tuner.search.recovery import read_stored_search, recover

    plan = plan_of(trials)
    spent: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = step()
        spent[name] = time.perf_counter() - begun
        return found

    files = timed("load_summary", lambda: load_summary(folder))
    stock = timed("read_stored_search", lambda: read_stored_search(files))
    recovered = timed("recover", lambda: recover(stock, lambda: new_state(plan, [])))
    recorder = recorder_of(recovered, plan)
    timed("begin", recorder.begin)
    return recorder, spent


def take_up(path: Path, trials: int) -> dict[str, Any]:
    """`resume` without a snapshot, and what the driver writes at the end."""
    from tuner.runs.loading import load_run

    (path / "state.pkl").unlink(missing_ok=True)
    recorder, spent = taken_up(folder_of(path), trials)
    told: dict[str, Any] = {"steps of resume (s)": spent, "resume (s)": sum(spent.values()), "peak RSS (GB)": rss()}
    recorder._control.returned = True
    begun = time.perf_counter()
    recorder.finish()
    recorder.close()
    told |= {"finish (s)": time.perf_counter() - begun, "peak RSS at the end (GB)": rss()}
    told["files (MB)"] = {f.name: f.stat().st_size / 1e6 for f in path.iterdir() if f.is_file()}
    begun = time.perf_counter()
    load_run(recorder.results.folder)
    return told | {"tables read back (s)": time.perf_counter() - begun}


def requests(path: Path, trials: int) -> dict[str, Any]:
    """As `take_up`, where the journal lies in an object store."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    from tuner.runs.journal.writer import SEGMENT_BYTES
    from tuner.storage.folder import RunFolder

    store = path.parent / "store"
    shutil.copytree(path, store / "run")
    lines, number, size = [], 0, 0
    for name in ("journal", "ray"):
        (store / "run" / name).mkdir(exist_ok=True)
    for count, line in enumerate((path / "journal.jsonl").read_bytes().splitlines(keepends=True), 1):
        number = number or count
        lines.append(line)
        size += len(line)
        if size >= SEGMENT_BYTES:
            (store / f"run/journal/{number:09}.jsonl").write_bytes(b"".join(lines))
            lines, number, size = [], 0, 0
    (store / f"run/journal/{number:09}.jsonl").write_bytes(b"".join(lines))
    (store / "run/journal.jsonl").unlink()
    filesystem = Counted(SubTreeFileSystem(str(store), LocalFileSystem()))
    _, spent = taken_up(RunFolder(filesystem, "run", "store://run"), trials)
    told = {"segments": len([*(store / "run/journal").iterdir()]), "requests": filesystem.requests}
    return told | {"requests in all": sum(filesystem.requests.values()), "steps (s)": spent}


def controller(path: Path, trials: int) -> dict[str, Any]:
    """Memory by trial of a whole search."""
    import ray

    from tests.faults.test_model import Place, experiment, watched
    from tuner.actions import run
    from tuner.execution.session import cluster_at
    from tuner.experiment.reader import load_experiment
    from tuner.plan.planner import make_plan
    from tuner.storage.lock import locked

    class Memory:
        """Reads the memory of this process when a quarter of the trials have ended, and at the end."""

        def __init__(self) -> None:
            self.ended_trials, self.reports, self.at = 0, 0, dict[int, tuple[int, int]]()

        def started(self, results: Any) -> None: ...
        def retried(self, trial: Any, failure: Any) -> None: ...
        def tick(self) -> None: ...
        def finished(self, results: Any) -> None: ...
        def reported(self, trial: Any, report: Any) -> None:
            self.reports += 1

        def ended(self, trial: Any) -> None:
            self.ended_trials += 1
            if self.ended_trials in (trials // 4, trials):
                gc.collect()
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                self.at[self.ended_trials] = pages * resource.getpagesize(), self.reports

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    place, memory = Place(path.parent, local=True), Memory()
    loaded = load_experiment({**experiment("random asha"), "budget": {"trials": trials}}, [])
    with watched(place), cluster_at(None) as cluster:
        plan = make_plan(loaded, cluster)
        place.folder.create()
        with locked(place.folder) as lock:
            run.begin(plan, dict(plan.spec.params), place.folder, lock, lambda text: None, listeners=[memory])
    (first, reported), (last, reports) = memory.at[trials // 4], memory.at[trials]
    count = trials - trials // 4
    return {"kB a trial": (last - first) / 1000 / count, "reports a trial": (reports - reported) / count}


def page(path: Path, browser: bool) -> dict[str, Any]:
    """The report."""
    from report_page import opened

    from tuner.runs.loading import load_run
    from tuner.visualization.html import page

    results = load_run(folder_of(path))
    cpu = time.process_time()
    text = page(results)
    told: dict[str, Any] = {"page, CPU s": time.process_time() - cpu, "MB": len(text) / 1e6, "peak RSS (GB)": rss()}
    (path / "report.html").write_text(text)
    if browser:
        milliseconds, processor = opened((path / "report.html").resolve())
        told |= {"opened (s)": milliseconds / 1e3, "CPU of its thread (s)": processor / 1e3}
    return told


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=100_000)
    options.add_argument("--no-browser", action="store_true")
    options.add_argument("--controller", action="store_true", help="That part alone, with 2,000 trials.")
    options.add_argument("--keep", type=Path, help="Where to keep the run folder.")
    options.add_argument(
        "--part", choices=["controller", "search", "take_up", "requests", "page"], help=argparse.SUPPRESS
    )
    options.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.part == "page":
        print(json.dumps(page(chosen.run, not chosen.no_browser), ensure_ascii=False))
    elif chosen.part:
        part = {"controller": controller, "search": search, "take_up": take_up, "requests": requests}[chosen.part]
        print(json.dumps(part(chosen.run, chosen.trials), ensure_ascii=False))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(scratch) / "run"
            trials = 2000 if chosen.controller else chosen.trials
            for name in ["controller"] if chosen.controller else ["search", "requests", "take_up", "page"]:
                command = [sys.executable, __file__, "--part", name, "--run", str(run), "--trials", str(trials)]
                command += ["--no-browser"] * chosen.no_browser
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                print(f"{name}:", flush=True)
                for key, value in json.loads(done.stdout.splitlines()[-1]).items():
                    print(f"  {key}: {_shown(value)}", flush=True)
            if chosen.keep and not chosen.controller:
                shutil.copytree(run, chosen.keep)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items()) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
