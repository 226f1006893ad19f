"""The documentation: every key of the experiment file is described, and what the pages show runs."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.experiment.reader import load_experiment
from tuner.experiment.schema import experiment_schema
from tuner.plan.cluster import Cluster, Node
from tuner.plan.planner import make_plan

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHIPPED = sorted(file.stem for file in (ROOT / "experiments").glob("*.yaml"))
WITH_EXTRAS = {"accelerate_fsdp", "accelerate_images", "lightning_images", "tabular", "text_lora"}
"""Experiments whose trainables import what the everyday environment lacks."""
LARGE = Cluster((Node("a", {"CPU": 128.0, "GPU": 128.0, "memory": 2.0**40}),))
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def properties() -> list[tuple[str, dict[str, Any]]]:
    schema = experiment_schema()
    definitions = {"experiment": schema, **schema["$defs"]}
    space = {"when", "group", "domain", "parameter", "SearchSpace"}
    return [
        (f"{block}.{name}", option)
        for block, definition in definitions.items()
        if block not in space
        for name, option in definition.get("properties", {}).items()
    ]


@pytest.mark.parametrize(("name", "option"), properties(), ids=[name for name, _ in properties()])
def test_every_key_of_the_experiment_file_has_a_description(name: str, option: dict[str, Any]) -> None:
    assert option.get("description", "").strip()


def test_the_reference_has_every_key(tmp_path: Path) -> None:
    sys.path.insert(0, str(DOCS / "_ext"))
    from experiment_reference import write  # type: ignore[import-not-found]

    write(tmp_path)
    text = "\n".join(page.read_text() for page in tmp_path.glob("*.md"))
    missing = [name for name, _ in properties() if f"{name.rpartition('.')[2]}`" not in text]
    assert missing == []
    assert {"search-bohb.md", "scheduler-asha.md", "budget.md", "objective.md"} <= {p.name for p in tmp_path.iterdir()}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists() or "experiment-file/" in target, f"{page.name}: {target}"


def test_the_tests_that_a_page_names_are_there() -> None:
    tests = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
            assert not name or f"def {name}(" in tests[file], f"{page.name}: {file}::{name}"
    guarantees = re.findall(r"\b(test_\w+)`", (DOCS / "reference/guarantees.md").read_text())
    assert [name for name in guarantees if not any(f"def {name}(" in text for text in tests.values())] == []


@pytest.mark.parametrize("folder", ["tutorials", "how-to", "reference", "explanation", "benchmarks"])
def test_the_index_of_a_folder_lists_its_pages(folder: str) -> None:
    """As links: who reads the repository and not the built site sees no toctree."""
    pages = {page.name for page in (DOCS / folder).glob("*.md")} - {"index.md"}
    listed = re.findall(r"^- \[.+?\]\(([\w-]+\.md)\)", (DOCS / folder / "index.md").read_text(), re.M)
    assert sorted(listed) == sorted(pages)


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_tutorial_from_python_runs(user_folder: Path) -> None:
    code = python_blocks(DOCS / "tutorials/from-python.md")
    (user_folder / "tutorial.py").write_text(code)
    exec(compile(code, "tutorial.py", "exec"), {"__name__": "__main__"})
    assert (user_folder / "runs/parabola/report.html").exists()
    assert (user_folder / "runs/laboratory/report.html").exists()


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_a_trial_of_the_tutorial_with_a_training_continues_from_its_checkpoint(user_folder: Path) -> None:
    import torch

    from tests.docs.how_to import write_files
    from tuner import Search, load

    assert write_files("../tutorials/your-own-training.md", user_folder) == ["my_train.py", "mine.yaml"]

    def search(epochs: int) -> Search:
        return Search.from_yaml("mine.yaml", {"budget.trials": 1, "params.epochs": epochs, "scheduler.max_t": epochs})

    short = search(2).run(name="short", progress="none")
    extended = short.extend(max_t=2, overrides=["params.epochs=4"], progress="none").reports_dataframe()
    whole = search(4).run(name="whole", progress="none").reports_dataframe()
    assert list(extended["epoch"]) == [1, 2, 3, 4]
    assert list(extended["val_accuracy"]) == list(whole["val_accuracy"])
    state = torch.load(user_folder / "runs/whole/best/checkpoint/state.pt")
    assert set(state) == {"epoch", "model", "optimizer"}
    tested = load("runs/whole").restore_best(test=True).test
    assert tested is not None
    assert 0.5 < tested["test_accuracy"] <= 1


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_twenty_lines_of_the_readme_run(user_folder: Path) -> None:
    from tuner import Search

    readme = (ROOT / "README.md").read_text()
    train = re.search(r"`train.py`.*?```python\n(.*?)```", readme, re.S)
    search = re.search(r"`search.yaml`.*?```yaml\n(.*?)```", readme, re.S)
    assert train is not None
    assert search is not None
    (user_folder / "train.py").write_text(train[1])
    (user_folder / "search.yaml").write_text(search[1])
    run = Search.from_yaml("search.yaml", {"budget.trials": 4}).run(progress="none")
    assert run.best_value is not None
    assert len(run.trials) == 4


def documented_searches() -> list[Any]:
    """(shipped experiment, its ``--set`` options) of each command on a page, and of the comments of an experiment."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^(?:    |\$ )((?:python -m )?tuner (?:run|validate) .*)$", text, re.MULTILINE):
            name, *rest = shlex.split(line.partition(" tuner ")[2] or line.partition(" ")[2], comments=True)[1:]
            if Path(name).stem in SHIPPED:
                options = [value for option, value in itertools.pairwise([name, *rest]) if option == "--set"]
                found.append(pytest.param(Path(name).stem, options, id=f"{page.name}: {line}"))
    for name in SHIPPED:
        comments = " ".join(re.findall(r"#(.*)", (ROOT / f"experiments/{name}.yaml").read_text()))
        options = re.findall(r"--set (\S+)", comments)
        found += [pytest.param(name, options, id=name)] if options else []
    return found


@pytest.mark.parametrize(("experiment", "options"), documented_searches())
def test_a_documented_command_is_valid(experiment: str, options: list[str]) -> None:
    loaded = load_experiment(ROOT / f"experiments/{experiment}.yaml", options)
    if experiment not in WITH_EXTRAS:
        make_plan(loaded, LARGE)
