"""A trial that trains in several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner import load_run, run
from tuner.errors import InputError, NoUsableResult
from tuner.execution import hang_detector, stacks
from tuner.runs.results import ResultSet

pytestmark = pytest.mark.usefixtures("ray_session")


def search(folder: Path, function: str, space: dict[str, Any], name: str = "run", **keys: Any) -> ResultSet:
    module = "trainables.digits" if function == "train" else f"{Path(__file__).parent}/group_toys.py"
    return run(
        {
            "trainable": f"{module}:{function}",
            "search_space": space,
            "objective": {"metric": "val_loss" if function == "train" else "score", "mode": "min"},
            "search": {"kind": "grid"},
            **keys,
            "resources": {"gpu": 0, "workers": 2, **keys.get("resources", {})},
        },
        storage=folder,
        name=name,
        say=lambda text: None,
    )


@pytest.mark.pairings
def test_two_processes_train_what_one_does_with_the_same_batch(tmp_path: Path) -> None:
    space, params = {"lr": {"grid_search": [0.05]}}, {"epochs": 3, "dropout": 0.0, "batch_size": 100}
    together = search(tmp_path, "train", space, "two", params=params)
    alone = search(tmp_path, "train", space, "one", params=params, resources={"workers": 1})
    (two,), (one,) = together.trials, alone.trials
    assert two.steps == one.steps == 3
    for here, there in zip(two.reports, one.reports, strict=True):
        for name in ("val_loss", "train_loss", "val_accuracy"):
            assert here.metrics[name] == pytest.approx(there.metrics[name], abs=1e-5)
    assert together.provenance["slots"] == 1  # of two CPUs
    log = tmp_path / "two/ray" / two.id
    assert {path.name for path in log.glob("output*")} == {"output.log", "output.1.log"}


@pytest.mark.pairings
def test_a_trainable_that_trains_alone_is_told_how_to_use_workers(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        search(tmp_path, "alone", {"x": {"grid_search": [1, 2]}})
    assert str(caught.value).startswith("resources.workers: 2 processes called the trainable, and it trained in each")
    assert "distributed.group()" in str(caught.value)


@pytest.mark.pairings
def test_what_a_trial_consumes_is_that_of_all_its_processes(tmp_path: Path) -> None:
    space = {"how": {"grid_search": ["not at all"]}}
    for workers in (1, 2):
        resources = {"workers": workers}
        params = {"marks": str(tmp_path), "fails": -1}
        search(tmp_path, "adds", space, f"of-{workers}", params=params, resources=resources)
    one, two = (load_run(tmp_path / f"of-{workers}").trials[0] for workers in (1, 2))
    for together, alone in zip(two.reports, one.reports, strict=True):
        assert together.consumption.peak_host_gib > 1.7 * alone.consumption.peak_host_gib
        assert together.consumption.host_gib > 1.7 * alone.consumption.host_gib


@pytest.mark.faults
@pytest.mark.parametrize(("rank", "ways"), [(0, ["kill"]), (1, ["raise", "kill", "other"])])
def test_whichever_process_fails_the_trial_goes_on_from_its_checkpoint(
    tmp_path: Path, rank: int, ways: list[str]
) -> None:
    params = {"marks": str(tmp_path), "fails": rank}
    trials = search(tmp_path, "adds", {"how": {"grid_search": ways}}, params=params).trials
    for trial in trials:
        assert trial.status == "completed", trial.reason
        assert [report.metrics["score"] for report in trial.reports] == [0.5 + epoch for epoch in range(1, 6)]
        assert trial.reports[-1].metrics["begun"] == 2
    told = {trial.config["how"]: [(f.kind, f.step, f.message) for f in trial.failures] for trial in trials}
    (kind, step, message), *more = told.pop("kill")
    assert (kind, step, more) == ("process died", 2, [])
    assert message.startswith("its process died")
    errors = {"raise": "RuntimeError: a broken rank", "other": "ValueError: other"}
    assert told == {how: [("exception", 2, errors[how])] for how in ways if how != "kill"}


@pytest.mark.faults
def test_of_a_group_that_hangs_every_rank_tells_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_detector, "LEAST_S", 10.0)  # to start again takes longer than that on a loaded machine
    monkeypatch.setattr(stacks, "STACK_HERE_S", 5.0)
    params = {"marks": str(tmp_path), "fails": 1, "at": 4}
    space = {"how": {"grid_search": ["hang"]}}
    (trial,) = search(tmp_path, "adds", space, params=params).trials
    assert trial.status == "completed", trial.reason
    assert [(failure.kind, failure.step) for failure in trial.failures] == [("hung", 3)]
    logs = tmp_path / "run/ray" / trial.id
    assert "in fail_once\n" in (logs / "output.1.log").read_text()
    assert "in mean\n" in (logs / "output.log").read_text()


@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_rank_that_does_not_come_its_log_tells_where_it_is(tmp_path: Path, rank: int) -> None:
    space = {"x": {"grid_search": [0]}}
    keys = {"params": {"fails": rank}, "failures": {"retries": 0}}
    with pytest.raises(NoUsableResult, match=r"[Tt]imed out"):
        search(tmp_path, "late", space, **keys)
    (trial,) = load_run(tmp_path / "run").trials
    log = tmp_path / "run/ray" / trial.id / ("output.1.log" if rank else "output.log")
    assert "in somewhere_else\n" in log.read_text()
