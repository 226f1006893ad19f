"""Tables of learning curves: what is read from them, what is refused, and how one is made of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.tables import by_formula, by_hand, space
from tuner.errors import InputError
from tuner.runs.results import ResultSet
from tuner.runs.trial import Origin, Report, Trial
from tuner.simulator import Table
from tuner.simulator.recording import record
from tuner.storage.folder import RunFolder

X = space({"x": {"choice": [0, 1, 2]}})


def small() -> pd.DataFrame:
    return by_hand([[1, 1], [2, 2], [3, 3]], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])


def test_curves_are_read_in_any_order_of_rows() -> None:
    table = Table.of(small().sample(frac=1, random_state=1), X, "score", "epoch")
    assert table.fidelities == (1, 2)
    assert table.curve({"x": 1}) == [(1, 0.3, 2.0), (2, 0.4, 4.0)]
    assert table.measured == 1


def test_a_configuration_of_the_table_finds_itself(tmp_path: Path) -> None:
    by_formula(informative=True).to_parquet(tmp_path / "t.parquet")
    table = Table.read(tmp_path / "t.parquet", space(), "val_accuracy", "epoch")
    assert table.name == "t"
    assert len(table.configurations) == 200
    assert [table.nearest(config) for config in table.configurations] == list(range(200))


def test_the_nearest_is_measured_in_the_unit_cube() -> None:
    searched = space({"lr": {"loguniform": [1e-4, 1.0]}, "kind": {"choice": ["a", "b"]}})
    frame = pd.DataFrame({"lr": [1e-4, 0.9, 0.01], "kind": ["a", "a", "b"], "epoch": 1, "score": 0.0, "seconds": 1.0})
    table = Table.of(frame, searched, "score", "epoch")
    assert table.nearest({"lr": 2e-3, "kind": "a"}) == 0
    assert table.nearest({"lr": 2e-2, "kind": "a"}) == 1
    # another category is as far away as the other end of a range
    assert table.nearest({"lr": 0.01, "kind": "b"}) == 2
    assert table.nearest({"lr": 1e-4, "kind": "b"}) == 2


def test_a_parameter_that_only_one_of_two_has_counts_one() -> None:
    searched = space({"kind": {"choice": ["a", "b"]}, "m": {"uniform": [0, 1], "when": {"kind": "a"}}})
    frame = pd.DataFrame({"kind": ["a", "a", "b"], "m": [0.0, 0.9, None], "epoch": 1, "score": 0.0, "seconds": 1.0})
    table = Table.of(frame, searched, "score", "epoch")
    assert table.configurations == ({"kind": "a", "m": 0.0}, {"kind": "a", "m": 0.9}, {"kind": "b"})
    assert [table.nearest(c) for c in ({"kind": "b"}, {"kind": "a", "m": 0.6}, {"kind": "a", "m": 0.2})] == [2, 1, 0]


def test_columns_in_single_precision_still_mean_their_domain() -> None:
    searched = space({"lr": {"loguniform": [1e-4, 0.1]}, "drop": {"choice": [0.1, 0.7]}, "n": {"randint": [1, 9]}})
    frame = pd.DataFrame({"lr": [1e-4, 0.1], "drop": [0.1, 0.7], "n": [1.0, 8.0], "epoch": 1, "score": 0, "seconds": 1})
    narrow = frame.astype({"lr": "float32", "drop": "float32", "n": "float32"})
    found = Table.of(narrow, searched, "score", "epoch").configurations
    assert [c["drop"] for c in found] == [0.1, 0.7]
    assert [c["n"] for c in found] == [1, 8]
    assert all(type(c["n"]) is int for c in found)


def changed(**columns: object) -> pd.DataFrame:
    return small().assign(**columns)


BAD: dict[str, tuple[Callable[[], pd.DataFrame], str]] = {
    "no rows": (lambda: small().iloc[:0], "the table has no rows"),
    "no metric": (lambda: small().drop(columns="score"), "score: the table lacks this column (the metric"),
    "no fidelity": (lambda: small().drop(columns="epoch"), "epoch: the table lacks this column (the fidelity"),
    "no seconds": (lambda: small().drop(columns="seconds"), "seconds: the table lacks this column"),
    "no parameter": (lambda: small().drop(columns="x"), "x: the table lacks this column (a parameter"),
    "a fidelity is missing": (lambda: small().drop(index=2), "epoch: 1 of 3 curves are not complete: the configuration "
                              "of row 2 has no epoch 1"),
    "the last one is missing": (lambda: small().drop(index=5), "the configuration of row 4 has no epoch 2"),
    "twice": (lambda: small().assign(epoch=1), "a configuration has epoch 1 more than once (rows 0 and 1)"),
    "twice, with another parameter": (lambda: small().assign(epoch=1, depth=[1, 2] * 3), "more than once (rows 0 and "
                                      "1, which differ in depth: is that a parameter that the search space lacks?)"),
    "half a fidelity": (lambda: changed(epoch=[1, 2.5] * 3), "epoch: must be whole and above 0; 3 rows are not (row 1"),
    "fidelity zero": (lambda: changed(epoch=[0, 1] * 3), "must be whole and above 0; 3 rows are not (row 0: 0)"),
    "NaN": (lambda: changed(score=[0.1, np.nan] * 3), "score: must be finite; 3 rows are not (row 1: nan)"),
    "infinite": (lambda: changed(score=[0.1, 1, 1, 1, 1, np.inf]), "score: must be finite; a row is not (row 5: inf)"),
    "negative": (lambda: changed(seconds=[-1, 1] * 3), "seconds: must be finite, and not negative; 3 rows are not"),
    "NaN seconds": (lambda: changed(seconds=[1, np.nan] * 3), "seconds: must be finite, and not negative; 3 rows are"),
    "no time": (lambda: changed(seconds=[0, 0] * 3), "seconds: 3 configurations take no time at all (row 1)"),
    "measured in words": (lambda: changed(measured=["yes"] * 6), "measured: the column must hold true and false"),
    "falling": (lambda: changed(seconds=[2, 1] * 3), "seconds: must be cumulative, but they fall from one epoch to"),
    "text": (lambda: changed(score=["high"] * 6), "score: the column must hold numbers, not"),
    "truth": (lambda: changed(score=[True] * 6), "score: the column must hold numbers, not bool"),
    "outside": (lambda: changed(x=[0, 0, 1, 1, 7, 7]), "x: 1 of 3 configurations are outside choice [0, 1, 2] (such"),
    "no value": (lambda: changed(x=[0, 0, 1, 1, None, None]), "x: 1 of 3 configurations are outside choice"),
}  # fmt: skip


@pytest.mark.parametrize(("frame", "message"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said_in_one_line(frame: Callable[[], pd.DataFrame], message: str, tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "bad.parquet", index=False)
    with pytest.raises(InputError) as caught:
        Table.read(tmp_path / "bad.parquet", X, "score", "epoch")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/bad.parquet: ")
    assert message in line


@pytest.mark.parametrize("below", ["logarithm of zero", "beyond"])
def test_numbers_outside_of_a_range_are_refused(below: str) -> None:
    searched = space({"lr": {"loguniform": [1e-4, 0.1]}})
    lr = 0.0 if below == "logarithm of zero" else 0.2
    frame = pd.DataFrame({"lr": [lr], "epoch": 1, "score": 0, "seconds": 1})
    with pytest.raises(InputError, match=r"lr: 1 of 1 configurations are outside loguniform"):
        Table.of(frame, searched, "score", "epoch")


def test_lists_may_be_lists_or_json(tmp_path: Path) -> None:
    searched = space({"layers": {"choice": [[64], [64, 32]]}})
    columns = {"epoch": [1, 2] * 2, "score": [0.1, 0.2, 0.3, 0.4], "seconds": [1.0, 2.0] * 2}
    for lists in ([[64], [64], [64, 32], [64, 32]], ["[64]", "[64]", "[64, 32]", "[64, 32]"]):
        pd.DataFrame({"layers": lists, **columns}).to_parquet(tmp_path / "t.parquet")
        table = Table.read(tmp_path / "t.parquet", searched, "score", "epoch")
        assert table.configurations == ({"layers": [64]}, {"layers": [64, 32]})


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Table.of(changed(score=np.nan, seconds=-1.0), X, "score", "epoch")
    assert [problem.key for problem in caught.value.problems] == ["score", "seconds"]


def test_no_file_and_no_parquet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such table"):
        Table.read(tmp_path / "none.parquet", X, "score", "epoch")
    (tmp_path / "text.parquet").write_text("x,epoch\n")
    with pytest.raises(InputError, match="this is not a readable parquet file"):
        Table.read(tmp_path / "text.parquet", X, "score", "epoch")


def test_a_space_may_be_a_file(tmp_path: Path) -> None:
    small().to_parquet(tmp_path / "t.parquet")
    (tmp_path / "s.yaml").write_text("x: {choice: [0, 1, 2]}\n")
    assert Table.read(tmp_path / "t.parquet", tmp_path / "s.yaml", "score", "epoch").space == X
    (tmp_path / "s.yaml").write_text("x: {choise: [0, 1, 2]}\ny: {uniform: [1, 0]}\n")
    with pytest.raises(InputError, match=r"s.yaml:2:.*the range is empty"):
        Table.read(tmp_path / "t.parquet", tmp_path / "s.yaml", "score", "epoch")
    with pytest.raises(InputError, match="the search space cannot be read"):
        Table.read(tmp_path / "t.parquet", tmp_path / "none.yaml", "score", "epoch")


def run_of(tmp_path: Path, scheduler: dict, *trials: tuple[dict, list[dict]]) -> ResultSet:
    """A finished run: of each trial its configuration and what it reported, two seconds apart."""
    spec = {"objective": {"metric": "score", "mode": "max"}, "scheduler": scheduler}
    results = ResultSet(RunFolder.at(tmp_path / "run"), spec, {})
    for number, (config, reports) in enumerate(trials, start=1):
        trial = results.add(Trial(f"t{number}", number, config, "completed"))
        trial.reports = [Report(trial.id, k, 2.0 * k, 0.0, metrics) for k, metrics in enumerate(reports, start=1)]
    return results


ASHA = {"kind": "asha", "time_attr": "epoch"}


def epochs(*scores: float, **more: object) -> list[dict]:
    return [{"epoch": k, "score": score, **more} for k, score in enumerate(scores, start=1)]


def test_a_run_becomes_a_table_that_reads_back(tmp_path: Path) -> None:
    long, short = {"x": 0, "model": {"w": [1, 2]}}, {"x": 2, "model": {"w": None}}
    recording = record(run_of(tmp_path, ASHA, (long, epochs(0.1, 0.2, 0.3, loss=1)), (short, epochs(0.5, loss=2))))
    assert (recording.curves, recording.carried_on, recording.left_out) == (2, 1, 0)
    (tmp_path / "t.parquet").write_bytes(recording.parquet())
    searched = space({"x": {"choice": [0, 1, 2]}, "model": {"w": {"choice": [[1, 2], None]}}})
    table = Table.read(tmp_path / "t.parquet", searched, "score", "epoch")
    assert table.configurations == (long, short)
    assert table.curve(long) == [(1, 0.1, 2.0), (2, 0.2, 4.0), (3, 0.3, 6.0)]
    # the short one continues with its last value, at its own pace, and is marked
    assert table.curve(short) == [(1, 0.5, 2.0), (2, 0.5, 4.0), (3, 0.5, 6.0)]
    assert table.measured == pytest.approx(4 / 6)
    assert Table.read(tmp_path / "t.parquet", searched, "loss", "epoch").curve(long)[0] == (1, 1.0, 2.0)


def test_without_a_scheduler_the_steps_are_reports(tmp_path: Path) -> None:
    frame = record(run_of(tmp_path, {"kind": "fifo"}, ({"x": 0}, [{"score": 0.1}, {"score": 0.2}]))).frame
    assert frame.to_dict("list") == {
        "x": [0, 0],
        "training_iteration": [1, 2],
        "score": [0.1, 0.2],
        "seconds": [2.0, 4.0],
        "measured": [True, True],
    }


def test_a_curve_that_is_carried_on_goes_on_counting(tmp_path: Path) -> None:
    """Whatever counts with the reports may be the fidelity of another experiment."""
    long = [{"epoch": k, "loss": 3 - k, "score": k} for k in (1, 2, 3)]
    short = [{"epoch": 1, "loss": 2, "score": 1}]
    recording = record(run_of(tmp_path, {"kind": "fifo"}, ({"x": 0}, long), ({"x": 1}, short)))
    (tmp_path / "t.parquet").write_bytes(recording.parquet())
    x = space({"x": {"choice": [0, 1]}})
    table = Table.read(tmp_path / "t.parquet", x, "score", "epoch")
    assert table.curve({"x": 1}) == [(1, 1.0, 2.0), (2, 1.0, 4.0), (3, 1.0, 6.0)]
    assert Table.read(tmp_path / "t.parquet", x, "loss", "epoch").curve({"x": 1})[-1] == (3, 2.0, 6.0)


def test_of_two_trials_with_one_configuration_the_longer_counts(tmp_path: Path) -> None:
    recording = record(run_of(tmp_path, ASHA, ({"x": 0}, epochs(0.1)), ({"x": 0}, epochs(0.2, 0.3)), ({"x": 1}, [])))
    assert recording.frame["score"].tolist() == [0.2, 0.3]
    assert recording.left_out == 2


def test_a_clone_from_a_checkpoint_has_no_curve_of_its_own(tmp_path: Path) -> None:
    trials = ({"x": 0}, epochs(0.1, 0.2)), ({"x": 0}, epochs(0.3, 0.4, 0.5)), ({"x": 1}, epochs(0.6, 0.7))
    results = run_of(tmp_path, {"kind": "fifo"}, *trials)
    results.trials[1].origin = Origin("ada", "t1", step=2)
    results.trials[2].origin = Origin("ada", "t1")  # from the beginning
    recording = record(results)
    assert (recording.curves, recording.carried_on, recording.left_out) == (2, 0, 1)
    assert list(recording.frame["score"]) == [0.1, 0.2, 0.6, 0.7]


def test_a_curve_ends_where_its_metric_is_no_number(tmp_path: Path) -> None:
    nan = float("nan")
    recording = record(run_of(tmp_path, ASHA, ({"x": 0}, epochs(0.1, nan, 0.3)), ({"x": 1}, epochs(0.1, 0.2, 0.3))))
    assert recording.carried_on == 1
    assert recording.frame["measured"].tolist() == [True, False, False, True, True, True]


def test_a_run_without_a_usable_report_gives_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trial has a finite score at a epoch"):
        record(run_of(tmp_path, ASHA, ({"x": 0}, [{"score": 1.0}]), ({"x": 1}, epochs(float("inf")))))


def test_population_based_training_has_no_curves(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pbt changed its configurations"):
        record(run_of(tmp_path, {"kind": "pbt", "time_attr": "epoch"}, ({"x": 0}, epochs(0.1))))


def test_a_parameter_must_not_be_called_like_another_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'seconds' has the name of another column"):
        record(run_of(tmp_path, ASHA, ({"seconds": 0}, epochs(0.1))))
    frame = pd.DataFrame({"seconds": [1], "epoch": 1, "score": 0})
    with pytest.raises(InputError, match="another column of the table: rename"):
        Table.of(frame, space({"seconds": {"choice": [1]}}), "score", "epoch")
