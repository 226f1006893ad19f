"""Searches and schedulers of third parties: by class_path, and by entry points of installed packages."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.tables import DOMAINS, by_formula
from tests.tracking.made_up import made_up_run, made_up_trial
from tuner import validate
from tuner.cli import cli
from tuner.errors import InputError, UserCodeRaised
from tuner.experiment.reader import Experiment, load_experiment
from tuner.experiment.schema import experiment_schema
from tuner.plan.compatibility import pairing_problems, space_problems
from tuner.plan.describe import description
from tuner.runs.journal import JournalWriter
from tuner.runs.results import EXPERIMENT, PROVENANCE, write_json
from tuner.schedulers import Asha
from tuner.schedulers.build import build_scheduler
from tuner.searchers import Random, Searcher, SearchProblem, SearchSpec, Space, spec_as_mapping
from tuner.searchers.build import build_searcher
from tuner.spec.document import dump_yaml
from tuner.spec.space import to_yaml

SEARCH = """
    from typing import Literal
    from pydantic import Field, field_validator
    from numpy.random import default_rng
    from tuner.searchers import Searcher, SearchSpec

    class Walk(SearchSpec):
        kind: Literal["walk"] = "walk"
        radius: float = Field(default=0.5, gt=0)
        colour: Literal["red", "blue"] = "red"
        trouble: str = ""

        @field_validator("radius")
        @classmethod
        def _no_nine(cls, radius):
            if radius == 9:
                raise RuntimeError("nine")
            return radius

        def build(self, task):
            return Walker(task, self.trouble)

        @property
        def max_objectives(self):
            if self.trouble == "property":
                raise RuntimeError("no property")
            return 2

        def validate_space(self, space):
            if self.trouble == "validate_space":
                raise RuntimeError("no answer")
            return [(p.path, "is crooked; call it straight") for p in space.parameters if p.name == "crooked"]

    class Walker(Searcher):
        def __init__(self, task, trouble):
            self.space, self.rng, self.trouble = task.space, default_rng(task.seed), trouble

        def suggest(self, trial_id):
            if self.trouble == "raises":
                raise KeyError("lost")
            if self.trouble in ("list", "far"):
                return {"list": [1], "far": {"x": 7.0}}[self.trouble]
            return self.space.sample(self.rng)

    class Lazy(SearchSpec):
        pass

    class Plain(SearchSpec):
        def build(self, task):
            return Walker(task, "")

    not_a_class = 3
"""
SCHEDULER = """
    from typing import Literal
    from tuner.schedulers import Decision, Scheduler, TimedSpec

    class Early(TimedSpec):
        kind: Literal["early"] = "early"
        at: int = 2
        answer: str = "stop"

        def build(self, task):
            return EarlyScheduler(self.at, self.answer)

        def rungs(self):
            return (self.at, self.max_t)

        def expected_at_rungs(self, trials):
            return (trials, trials)

        def incompatibility(self, search):
            return "early wants no grid: use random" if search == "grid" else None

    class EarlyScheduler(Scheduler):
        def __init__(self, at, answer):
            self.at, self.answer = at, answer

        def report(self, trial_id, step, value):
            answers = {"stop": Decision.STOP, "pause": Decision.PAUSE, "none": None}
            return answers[self.answer] if step == self.at else Decision.CONTINUE
"""


def dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a search and a scheduler of the user's."""
    (tmp_path / "mine.py").write_text(dedented(SEARCH))
    (tmp_path / "early.py").write_text(dedented(SCHEDULER))
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    names = ("mine", "early", "elsewhere", "offering")
    for name in names:
        sys.modules.pop(name, None)
    yield tmp_path
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)


def written(here: Path, search: str, scheduler: str = "{kind: fifo}", space: str = "{x: {uniform: [0, 1]}}") -> Path:
    file = here / "e.yaml"
    file.write_text(
        f"trainable: t:train\nsearch_space: {space}\nobjective: {{metric: loss, mode: min}}\n"
        f"search: {search}\nscheduler: {scheduler}\n"
    )
    return file


def refused(file: Path, *overrides: str) -> str:
    with pytest.raises(InputError) as raised:
        load_experiment(file, overrides)
    return str(raised.value).replace(f"{file.parent}/", "")


def loaded(here: Path, *arguments: Any) -> Experiment:
    return load_experiment(written(here, *arguments))


WALK = "{kind: custom, class_path: mine:Walk, radius: 0.25, seed: 3}"
TASK_OPTIONS: dict[str, Any] = {"modes": ("min",), "trials": 5, "max_t": 3, "seed": 0}


def test_a_class_path_names_a_search_with_options_of_its_own(here: Path) -> None:
    spec = loaded(here, WALK).spec
    assert type(spec.search).__name__ == "Walk"
    assert spec.search.model_dump()["radius"] == 0.25
    assert spec.search.seed == 3
    searcher = build_searcher(spec.search, SearchProblem(spec.search_space, **TASK_OPTIONS))
    first = [searcher.suggest("a"), searcher.suggest("b")]
    again = pickle.loads(pickle.dumps(build_searcher(spec.search, SearchProblem(spec.search_space, **TASK_OPTIONS))))
    assert [again.suggest("a"), again.suggest("b")] == first


def test_what_is_recorded_is_read_back_the_same(here: Path) -> None:
    scheduler = "{kind: custom, class_path: early.py:Early, max_t: 9}"
    spec = loaded(here, WALK, scheduler).spec
    recorded = spec.model_dump(mode="json", by_alias=True, exclude={"search_space"})
    assert recorded["search"]["class_path"] == "mine:Walk"
    assert recorded["search"]["colour"] == "red"
    assert recorded["scheduler"]["class_path"] == "early.py:Early"
    again = load_experiment({**recorded, "search_space": to_yaml(spec.search_space)}, roots=(here,)).spec
    assert again.search.model_dump() == spec.search.model_dump()
    assert again.scheduler.model_dump() == spec.scheduler.model_dump()
    assert spec_as_mapping(spec.search) == {
        "kind": "custom",
        "class_path": "mine:Walk",
        "seed": 3,
        "radius": 0.25,
    }


def test_a_process_that_imports_nothing_of_it_reads_its_pickle(here: Path, tmp_path_factory: Any) -> None:
    """As the process of a trial, which gets the scheduler's specification."""
    spec = loaded(here, WALK, "{kind: custom, class_path: early.py:Early, at: 3}").spec
    assert pickle.loads(pickle.dumps(spec.scheduler)) == spec.scheduler
    file = here / "spec.pkl"
    file.write_bytes(pickle.dumps((spec.search, spec.scheduler)))
    code = f"import pickle; a, b = pickle.load(open({str(file)!r}, 'rb')); print(a.radius, b.rungs())"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=elsewhere, check=False)
    assert done.stdout == "0.25 (3, 100)\n", done.stderr


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("{kind: custom, class_path: mine:Walk, radios: 1.0}", "e.yaml:4:47: search.radios: unknown key; allowed: "),
        ("{kind: custom, class_path: mine:Walk, radios: 1.0}", "did you mean 'radius'?"),
        ("{kind: custom, class_path: mine:Walk, radius: -1.0}", "e.yaml:4:47: search.radius: must be greater than 0"),
        ("{kind: custom, class_path: mine:Walk, colour: rad}", "search.colour: the text 'rad' is not allowed; allowed"),
        ("{kind: custom, class_path: mine:Walk, seed: x}", "search.seed: must be"),
        ("{kind: custom, class_path: mine:Walk, radius: 9.0}", "search.class_path: Walk cannot be used: RuntimeError"),
        ("{kind: custom, class_path: mine:Walk, trouble: property}", "Walk cannot be used: RuntimeError: no property"),
        ("{kind: custom, class_path: mine:Wolk}", "e.yaml:4:24: search.class_path: "),
        ("{kind: custom, class_path: mine:Wolk}", "has no 'Wolk'; did you mean 'Walk'?"),
        ("{kind: custom, class_path: minne:Walk}", "search.class_path: no module 'minne'"),
        ("{kind: custom, class_path: mine:not_a_class}", "is not a subclass of tuner.searchers.SearchSpec"),
        ("{kind: custom, class_path: early:Early}", "early:Early is not a subclass of tuner.searchers.SearchSpec"),
        ("{kind: custom, class_path: mine:Lazy}", "mine:Lazy does not define build"),
        ("{kind: custom, class_path: mine}", "search.class_path: the text 'mine' is not module:Class"),
        ("{kind: custom}", "search.class_path: required, but missing; write module:Class"),
        (
            "{kind: costum, class_path: mine:Walk}",
            "search.kind: 'costum' is unknown; allowed: auto, random, grid, optuna",
        ),
        ("{kind: costum, class_path: mine:Walk}", "did you mean 'custom'?"),
    ],
)
def test_mistakes_are_told_with_their_place(here: Path, search: str, message: str) -> None:
    assert message in refused(written(here, search))


def test_the_other_mistakes_of_the_file_are_told_too(here: Path) -> None:
    file = written(here, "{kind: custom, class_path: mine:Walk, radios: 1.0}", "{kind: asha, max_tt: 3}")
    assert "search.radios" in refused(file)
    assert "scheduler.max_tt" in refused(file)


def test_overrides_change_options_and_kinds(here: Path) -> None:
    file = written(here, WALK)
    assert load_experiment(file, ["search.radius=0.125"]).spec.search.model_dump()["radius"] == 0.125
    assert "--set search.radius: search.radius: must be greater than 0" in refused(file, "search.radius=-1.0")
    other = load_experiment(file, ["search.kind=random"]).spec.search
    assert other == Random(seed=3)
    back = load_experiment(
        written(here, "{kind: optuna, sampler: gp, seed: 3}"), ["search.kind=custom", "search.class_path=mine:Walk"]
    )
    assert back.spec.search.model_dump(exclude_unset=True) == {"kind": "custom", "class_path": "mine:Walk", "seed": 3}


def test_pairings_and_spaces_are_checked(here: Path) -> None:
    early = "{kind: custom, class_path: early:Early}"
    spec = loaded(here, "{kind: grid}", early, "{x: {choice: [0, 1]}}").spec
    assert list(pairing_problems(spec)) == [(("scheduler", "kind"), "early wants no grid: use random")]
    spec = loaded(here, WALK, early, "{crooked: {uniform: [0, 1]}}").spec
    assert list(pairing_problems(spec)) == []
    assert list(space_problems(spec.search, spec.search_space)) == [
        (("search_space", "crooked"), "is crooked; call it straight")
    ]
    spec = loaded(here, "{kind: custom, class_path: mine:Walk, trouble: validate_space}").spec
    with pytest.raises(InputError, match=r"Walk.validate_space raised RuntimeError: no answer \(.*mine.py, line"):
        list(space_problems(spec.search, spec.search_space))


@pytest.mark.parametrize(
    ("trouble", "error", "message"),
    [
        ("raises", UserCodeRaised, "search Walk raised"),
        ("list", InputError, "search Walk: suggest must return a dict or None, not list"),
        ("far", InputError, "search Walk suggested no point of the search space: x: "),
    ],
)
def test_a_search_that_misbehaves_is_named(here: Path, trouble: str, error: type[Exception], message: str) -> None:
    spec = loaded(here, f"{{kind: custom, class_path: mine:Walk, trouble: {trouble}}}").spec
    searcher = build_searcher(spec.search, SearchProblem(spec.search_space, **TASK_OPTIONS))
    with pytest.raises(error, match=message):
        searcher.suggest("a")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("none", "scheduler Early: report must return a Decision or an Exploit, not None"),
        ("pause", "scheduler Early pauses trials: its specification must define `pauses`"),
    ],
)
def test_a_scheduler_that_misbehaves_is_named(here: Path, answer: str, message: str) -> None:
    spec = loaded(here, WALK, f"{{kind: custom, class_path: early:Early, answer: {answer}}}").spec
    scheduler = build_scheduler(spec.scheduler, SearchProblem(spec.search_space, **TASK_OPTIONS))
    scheduler.add("a", {"x": 0.5})
    scheduler.report("a", 1, 1.0)
    with pytest.raises(InputError, match=message):
        scheduler.report("a", 2, 1.0)


class Mine(SearchSpec):
    """Of an importable module: this one."""

    width: int = 3

    def build(self, task: SearchProblem) -> Searcher:
        raise NotImplementedError


class TestFromPython:
    def test_built_in_ones_say_their_kind(self) -> None:
        assert spec_as_mapping(Asha()) == {"kind": "asha"}
        assert spec_as_mapping(Asha(max_t=27)) == {"kind": "asha", "max_t": 27}
        assert Random(seed=1).model_dump(exclude={"kind", "points_to_evaluate", "from_runs"}) == {
            "seed": 1,
            "sequence": "random",
        }

    def test_the_class_path_is_found_from_the_class(self) -> None:
        assert spec_as_mapping(Mine(width=4)) == {"kind": "custom", "class_path": f"{__name__}:Mine", "width": 4}

    def test_an_instance_stands_for_its_mapping(self, here: Path) -> None:
        experiment = {"trainable": "t:train", "search_space": {"x": {"uniform": [0, 1]}}}
        experiment["objective"] = {"metric": "loss", "mode": "min"}
        spec = load_experiment({**experiment, "search": Mine(width=4), "scheduler": Asha(max_t=9)}).spec
        assert spec_as_mapping(spec.search) == spec_as_mapping(Mine(width=4))
        assert spec.scheduler == Asha(max_t=9)

    def test_a_class_that_nobody_can_import_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Inner(Mine):
            pass

        with pytest.raises(InputError, match=r"Inner is defined inside a function .* move the class to the top level"):
            spec_as_mapping(Inner())
        monkeypatch.setattr(Mine, "__module__", "__main__")
        with pytest.raises(InputError, match=r"Mine is defined in the notebook or script that runs.*such as mine.py"):
            spec_as_mapping(Mine())


OFFERING = """
    [project]
    name = "offering"
    version = "1.0"
    [project.entry-points."tuner.searchers"]
    {name} = "{target}"
    [project.entry-points."tuner.schedulers"]
    early = "early:Early"
    [build-system]
    requires = ["setuptools"]
    build-backend = "setuptools.build_meta"
    [tool.setuptools]
    py-modules = ["mine", "early"]
"""


def install(here: Path, monkeypatch: pytest.MonkeyPatch, name: str = "walk", target: str = "mine:Walk") -> Path:
    """A package that offers a search and a scheduler, as pip lays it out."""
    site = here / "site"
    folder = site / "offering-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    points = f"[tuner.searchers]\n{name} = {target}\n[tuner.schedulers]\nearly = early:Early\n"
    (folder / "entry_points.txt").write_text(points)
    for module in ("mine.py", "early.py"):
        (here / module).rename(site / module)
    monkeypatch.syspath_prepend(str(site))
    return site


class TestEntryPoints:
    def test_its_kind_is_like_a_built_in_one(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(here, monkeypatch)
        spec = loaded(here, "{kind: walk, radius: 0.25}", "{kind: early, at: 3}").spec
        assert spec_as_mapping(spec.search) == {"kind": "walk", "radius": 0.25}
        assert spec_as_mapping(spec.scheduler) == {"kind": "early", "at": 3}
        recorded = spec.model_dump(mode="json", by_alias=True, exclude={"search_space"})
        assert recorded["search"]["kind"] == "walk"
        assert load_experiment({**recorded, "search_space": {"x": {"uniform": [0, 1]}}}).spec.search == spec.search
        assert "e.yaml:4:22: search.radios: unknown key" in refused(written(here, "{kind: walk, radios: 1.0}"))

    def test_it_is_in_the_hint_of_an_unknown_kind(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(here, monkeypatch)
        assert "did you mean 'walk'?" in refused(written(here, "{kind: wolk}"))

    def test_it_is_in_algorithms_and_in_the_schema(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(here, monkeypatch)
        rows = json.loads(CliRunner().invoke(cli, ["algorithms", "--json"]).stdout)
        assert {"search": "walk red", "scheduler": "early", "works": True, "why_not": None} in rows["pairings"]
        schema = experiment_schema()
        reference = schema["properties"]["search"]["discriminator"]["mapping"]["walk"]
        definition = schema["$defs"][reference.removeprefix("#/$defs/")]
        assert definition["properties"]["radius"]["exclusiveMinimum"] == 0

    def test_the_schema_takes_it_and_custom_ones(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from jsonschema import Draft202012Validator

        install(here, monkeypatch)
        validator = Draft202012Validator(experiment_schema())
        base: dict[str, Any] = {"trainable": "t:train", "search_space": {"x": 1}}
        base["objective"] = {"metric": "a", "mode": "max"}
        good: list[dict[str, Any]] = [
            {"kind": "walk", "radius": 0.5},
            {"kind": "custom", "class_path": "m:C", "any": 1},
            {"kind": "random"},
        ]
        for search in good:
            assert not list(validator.iter_errors({**base, "search": search}))
        bad: list[dict[str, Any]] = [{"kind": "walk", "radios": 0.5}, {"kind": "custom"}, {"kind": "magic"}]
        for search in bad:
            assert list(validator.iter_errors({**base, "search": search}))

    @pytest.mark.parametrize("name", ["random", "custom"])
    def test_a_name_that_is_taken_names_the_package(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        install(here, monkeypatch, name)
        message = refused(written(here, "{kind: walk}"))
        assert f"the search '{name}' of the installed package offering" in message
        assert "has the name of a built-in one: uninstall the package" in message
        done = CliRunner().invoke(cli, ["algorithms"])
        assert isinstance(done.exception, InputError)
        assert "installed package offering" in str(done.exception)

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("nowhere:Walk", "cannot be imported: ModuleNotFoundError"),
            ("mine:Wolk", "cannot be imported: AttributeError"),
            ("mine:not_a_class", "is not a subclass of tuner.searchers.SearchSpec"),
            ("mine:Plain", "has the kind 'custom': the class must declare kind: Literal[\"walk\"]"),
        ],
    )
    def test_what_it_offers_is_checked(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str
    ) -> None:
        install(here, monkeypatch, target=target)
        told = refused(written(here, "{kind: walk}"))
        assert f"search.kind: {target}, the search 'walk' of the installed package offering, {message}" in told

    def test_nothing_is_looked_up_for_built_in_kinds(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(here, monkeypatch, target="nowhere:Walk")
        monkeypatch.setattr("tuner.experiment.plug_ins.entry_points", None)
        monkeypatch.setattr("tuner.spec.algorithm.entry_points", None)
        spec = loaded(here, "{kind: random}", "{kind: asha, max_t: 9}").spec
        assert spec_as_mapping(spec.search) == {"kind": "random"}
        assert load_experiment(here / "e.yaml", ["search.kind=grid"]).spec.search.kind == "grid"

    def test_a_package_that_pip_installed(self, here: Path) -> None:
        (here / "pyproject.toml").write_text(dedented(OFFERING.format(name="walk", target="mine:Walk")))
        target = here / "installed"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--target", str(target), str(here)], check=True, capture_output=True)
        elsewhere = here / "elsewhere"
        elsewhere.mkdir()
        file = written(elsewhere, "{kind: walk, radius: 0.25}", "{kind: early}")
        code = (
            f"import sys; sys.path.insert(0, {str(target)!r}); from tuner.experiment.reader import load_experiment\n"
            f"spec = load_experiment({str(file)!r}).spec; print(spec.search.radius, spec.scheduler.kind)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=elsewhere, check=False)
        assert done.stdout == "0.25 early\n", done.stderr


ARMED = """
import os
from tuner.schedulers import TimedSpec
from tuner.searchers import SearchSpec

os.mkdir("boom")

class Search(SearchSpec):
    def build(self, task): ...

class Scheduler(TimedSpec):
    def build(self, task): ...
"""


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--storage", "runs"],
        ["show", "runs/run"],
        ["why", "runs/run"],
        ["report", "runs/run", "-o", "page.html"],
        ["compare", "runs/run", "runs/run"],
        ["table", "runs/run", "-o", "table.parquet"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("kind", [{"kind": "custom", "class_path": "armed.py:"}, {"kind": "armed"}], ids=str)
def test_reading_a_run_imports_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], kind: dict[str, str]
) -> None:
    install(here, monkeypatch, "armed", "armed:Search")
    (here / "armed.py").write_text(ARMED)
    results = made_up_run(here / "runs", working_directory=str(here), roots=[str(here)])
    named = {key: f"{value}Search" if key == "class_path" else value for key, value in kind.items()}
    results.spec["search_space"] = {"lr": {"uniform": [0, 1]}}
    results.spec["search"] = {**named, "seed": 0}
    results.spec["scheduler"] = {**named, "time_attr": "epoch", "max_t": 9}
    made_up_trial(results, 0.5, status="completed")
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance)
    results.save()
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    journal.close()
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert not (here / "boom").exists()
    with pytest.raises(InputError):  # the one who resumes it imports it
        load_experiment(results.spec, roots=(here,))
    assert (here / "boom").exists() == (kind["kind"] == "custom")


@pytest.fixture
def table(here: Path) -> Path:
    """An experiment with both, and a table to simulate it with."""
    by_formula(informative=True, configurations=50).to_parquet(here / "t.parquet")
    scheduler = "{kind: custom, class_path: 'early.py:Early', time_attr: epoch, max_t: 27, at: 9}"
    text = dump_yaml({"search_space": DOMAINS}, []).decode()
    (here / "e.yaml").write_text(
        f"trainable: t:train\nobjective: {{metric: val_accuracy, mode: max}}\nbudget: {{trials: 8}}\n{text}"
        f"search: {WALK}\nscheduler: {scheduler}\n"
    )
    return here


def test_both_are_simulated(table: Path) -> None:
    words = ["simulate", "e.yaml", "--table", "t.parquet", "--seeds", "2", "--trials", "8", "--json", "-o", "out"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output + repr(done.exception)
    row = json.loads(done.stdout)["results"][0]
    assert row["trials"] == 8


def test_both_are_in_the_plan(here: Path) -> None:
    (here / "t.py").write_text("def train(config): ...\n")
    scheduler = "{kind: custom, class_path: 'early.py:Early', max_t: 27, at: 9}"
    file = written(here, WALK, scheduler)
    file.write_text(file.read_text().replace("t:train", "t.py:train") + "resources: {gpu: 0}\n")
    plan = dict(description(validate(file)))
    assert plan["search"] == "walk, class_path mine:Walk, radius 0.25, colour red, trouble , seed 3"
    assert plan["rungs"] == "training_iteration    9: about 20 trials reach it"


def test_space_and_task_are_public() -> None:
    assert {Space.__name__, SearchProblem.__name__} == {"Space", "SearchProblem"}
