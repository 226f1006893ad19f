"""The examples of docs/how-to/bring-a-ray-trainable.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner import restore_best, run

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
PAGE = (Path(__file__).parents[2] / "docs/how-to/bring-a-ray-trainable.md").read_text()
FILES = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_an_example_of_the_page_runs(user_folder: Path, name: str) -> None:
    for file, text in FILES.items():
        Path(file).write_text(text)
    results = run(name, storage=user_folder / "runs", name="run", say=lambda text: None)
    assert {trial.status for trial in results.trials} == {"completed"}
    assert len(results.trials) == results.spec["budget"]["trials"]
    assert bool(results.notices) == (name == "old.yaml")
    if name == "ball.yaml":
        best = restore_best(results, test=True)
        assert best.test == {"height": best.recorded["height"]}


def test_the_page_has_examples() -> None:
    assert {Path(name).suffix for name in FILES} == {".py", ".yaml"}
