"""Long lines: cut on a terminal, folded elsewhere, whole with ``--wide``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.runs.test_results import new_run, trial
from tuner.cli import cli, options
from tuner.runs.results import PROVENANCE, write_json
from tuner.visualization.text_tables import format_columns

CONFIG = {f"a_parameter_{k}": 0.125 * k for k in range(20)}


@pytest.fixture
def run(tmp_path: Path) -> str:
    results = new_run(tmp_path / "q")
    write_json(results.folder, PROVENANCE, {"started": "2026-01-01", "notices": [], "interrupted": False})
    trial(results, 0.5, config=CONFIG)
    results.save()
    return str(tmp_path / "q")


def shown(*words: str) -> list[str]:
    return CliRunner().invoke(cli, ["show", *words], catch_exceptions=False).stdout.splitlines()


def test_elsewhere_nothing_is_lost_and_no_line_is_long(run: str) -> None:
    lines = shown(run)
    assert max(map(len, lines)) <= options.FOLDED
    table = lines[lines.index("") :]
    words = " ".join(table).replace(",", " ").split()
    assert [word for word in words if word.startswith("a_parameter_")] == list(CONFIG)


def test_wide_has_one_line_a_trial(run: str) -> None:
    lines = shown(run, "--wide")
    assert len(lines[lines.index("") :]) == 3
    assert "a_parameter_19 2.375" in lines[-1]


def test_on_a_terminal_a_row_is_a_line(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "width", lambda: 80)
    lines = shown(run)
    assert len(lines[lines.index("") :]) == 3
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith("…")
    assert "a_parameter_19 2.375" in shown(run, "--wide")[-1]


def test_folded_cells_stay_in_their_columns() -> None:
    rows = [["a", "b", "c"], ["1", "one two three four", "x"], ["2", "", "y"]]
    assert format_columns(rows, 16, fold=True).splitlines() == [
        "a  b           c",
        "1  one two     x",
        "   three four",
        "2              y",
    ]
