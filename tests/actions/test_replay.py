"""A recorded trial run again in this process: it agrees to the last bit, or the first difference is told."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace as with_
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.train._internal import session as tune_session

from tests.cli.test_command_line import tuner
from tests.documents import conforms
from tuner import load_run, run
from tuner.actions.replay import Replay, replay
from tuner.actions.replay_comparison import equal_as_recorded, is_process_metric
from tuner.errors import InputError, Interrupted
from tuner.runs.named_trial import find_trial
from tuner.runs.provenance import surroundings
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.runs.trial import Report, Segment, Trial
from tuner.spec.document import dump_yaml
from tuner.storage.folder import RunFolder

TOYS = Path(__file__).parents[1] / "execution/toys.py"

TOY = """
import json, os, random, sys, tempfile
from pathlib import Path
from ray import tune

STATE = []

def epochs(config):
    for epoch in range(1, config.get("epochs", 4) + 1):
        tune.report({"epoch": epoch, "score": config["x"] / epoch})

def raises(config):
    tune.report({"epoch": 1, "score": config["x"]})
    raise RuntimeError("a broken\\ntrial")

def no_number(config):
    tune.report({"epoch": 1, "score": config["x"]})
    tune.report({"epoch": 2, "score": float("nan")})

def prints(config):
    print("from python")
    os.system("echo from a child")
    tune.report({"epoch": 1, "score": config["x"]})

def silent(config):
    pass

def interrupted(config):
    tune.report({"epoch": 1, "score": config["x"]})
    raise KeyboardInterrupt

def hides(config):
    for epoch in range(1, 100):
        try:
            tune.report({"epoch": epoch, "score": config["x"] / epoch})
        except Exception:
            pass

def hides_all(config):
    for epoch in range(1, 100):
        try:
            tune.report({"epoch": epoch, "score": config["x"] / epoch})
        except:
            pass

def session(config):
    STATE.append(1)
    os.environ["LEFT"] = "behind"
    os.chdir("/")
    sys.path.insert(0, "/left/behind")
    assert tune.get_checkpoint() is None
    folders = []
    for epoch in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch, "score": 0.0}, checkpoint=tune.Checkpoint.from_directory(folder))
        with tune.get_checkpoint().as_directory() as latest:
            assert json.loads(Path(latest, "state.json").read_text()) == epoch
            folders.append(latest)
    assert not Path(folders[0]).exists()
    context = tune.get_context()
    Path(config["out"]).write_text(json.dumps([
        context.get_trial_id(), context.get_trial_name(), context.get_trial_dir(),
        context.get_trial_resources().bundles,
        os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"], folders[1], len(STATE),
    ]))
"""


@pytest.fixture
def toy(user_folder: Path) -> Path:
    (user_folder / "toy.py").write_text(TOY)
    return user_folder


def recorded(
    folder: Path, function: str, reports: list[dict[str, Any]], config: dict | None = None, **trial: Any
) -> ResultSet:
    """A run of one trial as `run` would have left it, read back."""
    config = {"x": 0.3} if config is None else config
    spec = {
        "name": "toy",
        "trainable": f"toy.py:{function}",
        "params": {},
        "search_space": {name: {"choice": [value]} for name, value in config.items()},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 1},
        "scheduler": {"kind": "fifo"},
        "resources": {"cpu": 1},
    }
    provenance = {
        "roots": [str(folder)],
        "working_directory": str(folder),
        "seed": 1,
        "trial_resources": {"CPU": 1.0},
        **surroundings(folder),
    }
    results = ResultSet(RunFolder.at(folder / "runs/toy"), spec, provenance)
    found = results.add(Trial("0123abcd", 1, config, **{"status": "completed", **trial}))
    found.reports = [Report(found.id, i, float(i), float(i), metrics) for i, metrics in enumerate(reports, start=1)]
    found.best = max(found.reports, key=lambda r: r.metrics["score"], default=None)
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(spec, []))
    write_json(results.folder, PROVENANCE, provenance)
    results.save()
    return load_run(results.folder.location)


def again(results: ResultSet, **options: Any) -> Replay:
    return replay(results, results.trials[0], **options)


def curve(epochs: int, x: float = 0.3) -> list[dict[str, Any]]:
    return [{"epoch": epoch, "score": x / epoch} for epoch in range(1, epochs + 1)]


def test_a_trial_agrees_with_its_record_and_ray_is_not_started(toy: Path) -> None:
    seen: list[Report] = []
    done = again(recorded(toy, "epochs", curve(4)), show=lambda report, found: seen.append(report))
    assert done.agrees
    assert done.describe() == ["agrees: 4 reports, 2 metrics, to the last bit"]
    assert [(r.step, r.metrics) for r in seen] == list(enumerate(curve(4), start=1))
    assert not ray.is_initialized()


def test_a_bit_more_is_a_difference_at_its_step(toy: Path) -> None:
    reports = curve(4)
    reports[2]["score"] = math.nextafter(0.1, 1)
    done = again(recorded(toy, "epochs", reports))
    assert not done.agrees
    assert [(d.metric, d.step, d.here, d.recorded) for d in done.differences] == [
        ("score", 3, 0.3 / 3, reports[2]["score"])
    ]
    assert done.describe()[0] == f"differs from report 3 on: score {0.3 / 3!r} here, {reports[2]['score']!r} recorded"


def test_the_parameters_that_prepare_gave_are_those_of_the_replay(toy: Path) -> None:
    results = recorded(toy, "epochs", curve(6))
    assert not again(results).agrees
    results.spec["params"] = {"epochs": 6}
    assert again(results).agrees


def test_what_a_metric_measures_of_the_process_is_told_but_no_verdict(toy: Path) -> None:
    reports = [{**metrics, "images_per_second": 7.0} for metrics in curve(4)]
    done = again(recorded(toy, "epochs", reports))
    assert done.agrees
    assert done.metrics == 2
    assert "measured anew" in done.describe()[1]
    assert "images_per_second nothing here, 7.0 recorded, from report 1 on" in done.describe()[1]
    reports = [{**metrics, "loss": 7.0} for metrics in curve(4)]
    assert not again(recorded(toy, "epochs", reports)).agrees


@pytest.mark.parametrize("function", ["epochs", "hides", "hides_all"])
def test_a_stopped_trial_ends_with_its_last_recorded_report(toy: Path, function: str) -> None:
    reports: list[int] = []
    results = recorded(
        toy, function, curve(2), {"x": 0.3}, status="stopped", reason="stopped by the scheduler at rung 2"
    )
    done = again(results, show=lambda report, found: reports.append(report.step))
    assert done.agrees
    assert reports == [1, 2]


def test_until_ends_earlier(toy: Path) -> None:
    reports = curve(4)
    reports[3]["score"] = 9.0
    assert again(recorded(toy, "epochs", reports), until=3).describe() == [
        "agrees: 3 reports, 2 metrics, to the last bit"
    ]
    assert not again(recorded(toy, "epochs", reports), until=9).agrees
    with pytest.raises(InputError, match="--until 0: reports are counted from 1"):
        again(recorded(toy, "epochs", reports), until=0)


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        (3, "a report 4 here, its return after report 3 recorded"),
        (5, "returns here after report 4; recorded: completed"),
    ],
)
def test_a_trial_that_returns_earlier_or_later_differs(toy: Path, epochs: int, said: str) -> None:
    done = again(recorded(toy, "epochs", curve(epochs)))
    assert not done.agrees
    assert said in done.ending


BROKEN = "RuntimeError: a broken"


@pytest.mark.parametrize(
    ("function", "steps", "reason", "ending"),
    [
        ("raises", 1, BROKEN, ""),
        ("no_number", 1, "report 2: score is nan", ""),
        ("silent", 0, "ended without a report; call tuner.report(...) or ray.tune.report({...}) at least once", ""),
        ("raises", 1, "RuntimeError: another", f"fails here after report 1: {BROKEN}; recorded: failed after report 1"),
        ("raises", 2, BROKEN, f"fails here after report 1: {BROKEN}; recorded: failed after report 2"),
        ("epochs", 4, BROKEN, "returns here after report 4; recorded: failed after report 4: RuntimeError: a broken"),
        ("epochs", 2, BROKEN, "a report 3 here, after report 2 the failure 'RuntimeError: a broken' recorded"),
    ],
)
def test_a_failed_trial_is_followed_to_its_failure(
    toy: Path, function: str, steps: int, reason: str, ending: str
) -> None:
    raised: list[BaseException] = []
    results = recorded(toy, function, curve(steps), status="failed", reason=reason)
    done = again(results, on_error=raised.append)
    assert done.ending.startswith(ending)
    assert done.agrees == (not ending)
    assert len(raised) == (function != "epochs")
    if not ending:
        assert done.describe()[0].endswith(f"fails as recorded: {reason}")


def test_ctrl_c_says_how_far_it_came(toy: Path) -> None:
    directory = Path.cwd()
    with pytest.raises(Interrupted, match="interrupted after 1 of 4 reports"):
        again(recorded(toy, "interrupted", curve(4)))
    assert Path.cwd() == directory
    assert not tune_session.get_session(), "Ray's own session is back"


def test_what_the_function_prints_goes_to_stderr(toy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    again(recorded(toy, "prints", curve(1)))
    out, err = capfd.readouterr()
    assert out == ""
    assert set(err.splitlines()) == {"from python", "from a child"}


def test_a_failure_that_was_not_recorded_differs(toy: Path) -> None:
    done = again(recorded(toy, "raises", curve(1), status="stopped", reason="stopped by the scheduler at rung 1"))
    assert done.agrees, "it ends at its last report, before it fails"
    done = again(recorded(toy, "raises", curve(2), status="stopped", reason="stopped by the scheduler at rung 2"))
    assert (
        done.ending
        == f"fails here after report 1: {BROKEN}; recorded: stopped after report 2: stopped by the scheduler at rung 2"
    )


def test_a_failure_of_two_reports_at_once_is_not_taken_for_the_recorded_one(toy: Path) -> None:
    results = recorded(toy, "no_number", curve(2), status="failed", reason="report 2: score is nan")
    assert not again(results).agrees


def test_the_function_finds_ray_s_session_and_the_process_is_given_back(toy: Path) -> None:
    directory, path, threads, modules = Path.cwd(), list(sys.path), torch.get_num_threads(), dict(sys.modules)
    environment = dict(os.environ)
    reports = [{"epoch": epoch, "score": 0.0} for epoch in (1, 2)]
    results = recorded(toy, "session", reports, {"out": str(toy / "out.json")})
    for _ in range(2):
        assert again(results).agrees
        told = json.loads((toy / "out.json").read_text())
        assert told[:2] == ["0123abcd", "Trial_0123abcd"]
        assert told[3:6] == [[{"CPU": 1.0}], "", "1"]
        assert not Path(told[2]).exists()
        assert not Path(told[6]).exists()
        assert told[7] == 1, "the state of the user's modules starts anew"
    assert (Path.cwd(), sys.path, torch.get_num_threads()) == (directory, path, threads)
    assert dict(os.environ) == environment
    assert all(sys.modules.get(name) is module for name, module in modules.items())


def test_unknown_trials_and_those_without_a_course_of_their_own_are_refused(toy: Path) -> None:
    results = recorded(toy, "epochs", curve(4))
    assert find_trial(results, "1") is find_trial(results, "0123abcd") is results.trials[0]
    with pytest.raises(InputError, match=r"has no trial '0123abce'; allowed: 0123abcd; did you mean '0123abcd'\?"):
        find_trial(results, "0123abce")
    with pytest.raises(InputError, match="has no trial '7'; its trials have the numbers 1 to 1"):
        find_trial(results, "7")
    trial = results.trials[0]
    trial.segments = [Segment(0, trial.config), Segment(2, {"x": 0.4}, "4567cdef", 2)]
    with pytest.raises(InputError, match=r"trial #1 \(0123abcd\) continued from other trials' checkpoints"):
        replay(results, trial)
    with pytest.raises(InputError, match=r"is pending and reported nothing"):
        replay(results, Trial("89abcdef", 2, {"x": 0.1}))
    with pytest.raises(InputError, match=r"has no report 2: nothing to compare"):
        replay(results, with_(trial, segments=[], reports=[trial.reports[0], trial.reports[2]]))


def test_other_packages_and_another_place_explain_a_difference(toy: Path) -> None:
    reports = curve(4)
    reports[0]["score"] = 9.0
    results = recorded(toy, "epochs", reports)
    assert len(again(results).describe()) == 1
    results.provenance["packages"]["torch"] = "1.0"
    results.provenance["working_directory"] = "/gone"
    told = again(results).describe()[1:]
    assert told == [
        f"not as in the run: torch {version('torch')} here, 1.0 then",
        f"not as in the run: the working directory /gone is gone: it ran in {toy}",
    ]


@pytest.mark.parametrize(
    ("here", "there", "equal"),
    [
        (0.1, 0.1, True),
        (0.1, math.nextafter(0.1, 1), False),
        (0.0, -0.0, False),
        (math.nan, math.nan, True),
        (math.nan, None, True),  # a run folder keeps no NaN
        (None, None, True),
        (math.nan, 0.0, False),
        (None, 0.0, False),
        (0.0, None, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (3, 3.0, True),  # other trials reported floats
        (3, 3.5, False),
        (True, True, True),
        (True, 1, False),
        (True, False, False),
        ("sgd", "sgd", True),
        ("sgd", "adam", False),
        (3, "3", True),  # a column of mixed kinds is text
        (3, "4", False),
        ("x", 1.0, False),
        (10**400, 1.0, False),
    ],
)
def test_values_are_the_same_when_all_their_bits_are(here: Any, there: Any, equal: bool) -> None:
    assert equal_as_recorded(here, there) is equal


def test_names_that_measure_the_process() -> None:
    measured = (
        "images_per_second pid_ pid step_time time_total_s eval_ms latency_ms memory_gib train/seconds hostname wait_s"
    )
    computed = "loss val_loss accuracy epoch lr steps losses times_seen class mse msle timeliness rms"
    assert [name for name in measured.split() if not is_process_metric(name)] == []
    assert [name for name in computed.split() if is_process_metric(name)] == []


@pytest.mark.processes
def test_the_command_line_compares_debugs_and_tells_what_it_cannot_find(toy: Path) -> None:
    recorded(toy, "raises", curve(1), status="failed", reason=BROKEN)
    done = tuner("replay", "toy", "1", cwd=toy)
    assert (done.returncode, done.stdout) == (
        0,
        f"agrees: 1 report, 2 metrics, to the last bit; fails as recorded: {BROKEN}\n",
    )
    assert "step 1  epoch 1  score 0.3" in done.stderr
    assert "Traceback" in done.stderr
    assert 'raise RuntimeError("a broken' in done.stderr

    command = [sys.executable, "-m", "tuner", "replay", "toy", "0123abcd", "--pdb"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    debugged = subprocess.run(
        command, cwd=toy, input="p config['x'] + 0.2\nq\n", capture_output=True, text=True, env=environment, check=False
    )
    assert "(Pdb) 0.5" in debugged.stdout
    assert debugged.returncode == 0

    recorded(toy, "epochs", [{"epoch": 1, "score": 0.4}, *curve(4)[1:]])
    differs = tuner("replay", "runs/toy", "1", "--json", cwd=toy)
    assert differs.returncode == 5
    told = conforms("replay", differs.stdout)
    assert (told["agrees"], told["reports"]) == (False, 4)
    assert told["differences"] == [{"metric": "score", "step": 1, "here": 0.3, "recorded": 0.4, "measured": False}]

    unknown = tuner("replay", "toy", "2", cwd=toy)
    assert unknown.returncode == 2
    assert unknown.stderr == "error: TRIAL: runs/toy has no trial '2'; its trials have the numbers 1 to 1\n"


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_trials_of_a_run_agree_to_the_last_bit(tmp_path: Path) -> None:
    results = run(
        "experiments/quickstart.yaml",
        {"params.epochs": 5, "scheduler.max_t": 5, "tracking.mlflow": None, "budget.trials": 4, "search.seed": 3},
        storage=tmp_path,
        name="run",
        say=lambda text: None,
    )
    loaded = load_run(tmp_path / "run")
    assert results.count("stopped") > 0
    for trial in loaded.trials:
        done = replay(loaded, trial)
        assert done.describe() == [f"agrees: {trial.steps} report{'s' * (trial.steps > 1)}, 4 metrics, to the last bit"]
    edited = loaded.trials[0]
    edited.reports[-1].metrics["val_loss"] *= 1 + 2**-50
    assert replay(loaded, edited).describe()[0].startswith(f"differs from report {edited.steps} on: val_loss ")
    loaded.provenance["seed"] += 1
    edited.config["seed"] = 1  # the initial weights: the training goes another way from the first report on
    assert replay(loaded, edited).differences[0].step == 1


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_random_numbers_threads_and_places_are_those_of_the_trial(tmp_path: Path) -> None:
    run(
        {
            "trainable": f"{TOYS.with_name('torch_toys.py')}:mess_or_measure",
            "search_space": {"what": {"grid_search": ["mess", "measure"]}},
            "objective": {"metric": "score", "mode": "max"},
            "search": {"kind": "grid"},
            "resources": {"gpu": 0, "max_concurrent_trials": 1},
        },
        storage=tmp_path,
        name="run",
        say=lambda text: None,
    )
    results = load_run(tmp_path / "run")
    done = replay(results, results.trials[1])
    # a process of Ray has other warning filters and arguments than one of pytest; the rest is the same
    assert {d.metric for d in done.differences} <= {"pid_", "filters", "arguments"}
    assert done.metrics > 10
    results.provenance["seed"] += 1
    changed = {d.metric for d in replay(results, results.trials[1]).differences}
    assert changed >= {"numpy", "python", "torch", "weight"}
