"""Which trials `best` can restore, and what it says of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.test_results import new_run, trial
from tuner.errors import InputError
from tuner.runs.restore import restore_best
from tuner.visualization.text_tables import best_command


def test_where_nothing_was_checkpointed_that_is_all_that_is_said(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.5, checkpoint=False)
    trial(results, 0.6, checkpoint=False)
    results.save_best()
    none = f"the trainable of {tmp_path}/r reported no checkpoints: there is no model to restore"
    for wanted in (None, "id2", "1"):
        with pytest.raises(InputError) as caught:
            restore_best(results, trial=wanted)
        assert str(caught.value) == none


@pytest.mark.parametrize(
    ("evaluate", "option", "why"),
    [
        ("", "", "evaluate() does not exist in the module of train.py:train"),
        ("def evaluate(config, checkpoint):\n    return {}\n", " --test", "evaluate() takes no split in the module"),
    ],
)
def test_the_command_to_restore_is_one_that_the_trainable_can_follow(
    tmp_path: Path, evaluate: str, option: str, why: str
) -> None:
    (tmp_path / "train.py").write_text(f"def train(config): ...\n{evaluate}")
    results = new_run(tmp_path / "r")
    results.spec["trainable"] = "train.py:train"
    results.provenance |= {"roots": [str(tmp_path)], "working_directory": str(tmp_path), "can_evaluate": bool(evaluate)}
    best = trial(results, 0.5)
    assert best_command(results, best) == f"python -m tuner best {results.folder.quoted}{option}"
    (tmp_path / "r" / "ray" / "id1" / "1").mkdir(parents=True)
    assert why in restore_best(results, trial="1", test=bool(evaluate)).not_validated


def test_where_others_have_checkpoints_they_are_named(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.5, checkpoint=False)
    trial(results, 0.6)
    trial(results, 0.7)
    with pytest.raises(InputError, match=r"no checkpoint of trial #1 .* is kept .*; those that have one: id3, id2$"):
        restore_best(results, trial="id1")
    trial(results)
    with pytest.raises(InputError, match=r"trial #4 \(id4\) reported nothing"):
        restore_best(results, trial="4")
    with pytest.raises(InputError, match="has no trial 'id9'"):
        restore_best(results, trial="id9")
