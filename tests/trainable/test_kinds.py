"""The kinds of trainables: what they look like to the rest, what they ask for, and what is none of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.air.session
import ray.train
from ray import tune

from tests.one_trial import run_trial
from tuner.actions.run import validate
from tuner.errors import InputError
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.trainable import old_interfaces
from tuner.trainable.bound_parameters import parameters_released
from tuner.trainable.class_trial import ClassTrial
from tuner.trainable.old_interfaces import understood
from tuner.trainable.requested_resources import requested
from tuner.trainable.trainable import Trainable, load_trainable, pickle_function

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
"""Ray 2.56 gives it where a Trainer or a Tuner is made."""

TOYS = Path(__file__).parents[1] / "execution" / "kinds_toys.py"

MODULE = """
import dataclasses, functools
import ray, torch
from ray import tune
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.linear_model import LogisticRegression

@dataclasses.dataclass
class Config:
    lr: float = 0.1

def train(config: Config, data, scale=1): tune.report({"score": config.lr * data * scale})
def evaluate(config, checkpoint): return {"score": 1.0}
def plain(config): tune.report({"score": 1.0})
def of_bundles(config): ...
def of_config(config): ...
def of_zero(config): ...

partial = functools.partial(train, data=2)
before = functools.partial(lambda data, config: None, 3)
parameters = tune.with_parameters(train, data=2)
nested = functools.partial(tune.with_parameters(functools.partial(train, scale=3), data=2))
resources = tune.with_resources(parameters, {"cpu": 2, "gpu": 1})
missing = tune.with_parameters(train, scale=2)

class Thing(tune.Trainable):
    def step(self): return {"score": 1.0}
class Ends(Thing):
    def step(self): return dict(score=1.0, done=True)
class Small(Thing):
    @classmethod
    def default_resource_request(cls, config): return tune.PlacementGroupFactory([{"CPU": 3}])
class Empty(tune.Trainable): ...
class Plain: ...
class Net(torch.nn.Module): ...

class_parameters = tune.with_parameters(Thing, data=1)
class_resources = tune.with_resources(Ends, {"cpu": 4, "memory": 2**30, "custom_resources": {"disk": 2}})
bundles = tune.with_resources(of_bundles, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}]))
depends = tune.with_resources(of_config, lambda config: tune.PlacementGroupFactory([{"CPU": config["x"]}]))
broken = tune.with_resources(of_zero, lambda config: 1 / 0)
trainer = TorchTrainer(plain, scaling_config=ScalingConfig(num_workers=1))
whole = tune.Tuner(plain)
thing = Thing.__new__(Thing)
net = Net()
estimator = LogisticRegression()
name = "PPO"
number = 3
remote = ray.remote(plain)
Actor = ray.remote(Plain)
async def later(config): ...
"""


@pytest.fixture
def folder(user_folder: Path) -> Path:
    (user_folder / "some_kinds.py").write_text(MODULE)
    return user_folder


@pytest.fixture
def toys(user_folder: Path) -> Path:
    shutil.copy(TOYS, user_folder / "kinds_toys_here.py")
    return user_folder


@pytest.fixture(autouse=True)
def nothing_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_interfaces, "_used", {})
    monkeypatch.setattr(old_interfaces, "_told", [0])


def here(folder: Path, name: str, config: dict[str, Any], last: int = 99) -> tuple[list[dict], str]:
    """The reports of a trial in this process, without Ray, and why it failed."""
    return run_trial(folder, f"kinds_toys_here.py:{name}", config, ("score",), last=last)


def load(folder: Path, name: str) -> Trainable:
    return load_trainable(f"some_kinds.py:{name}", (folder,))


# --- what it looks like ---


@pytest.mark.parametrize("name", ["partial", "parameters", "nested", "resources"])
def test_a_wrapped_function_keeps_its_config_and_its_module(folder: Path, name: str) -> None:
    trainable = load(folder, name)
    assert trainable.config_type is not None
    assert trainable.parameters == ("lr",)
    assert trainable.can_evaluate
    assert [path for path, _ in trainable.config_problems({"lrr": 1.0})] == [("lrr",)]


def test_a_class_takes_a_plain_dict_and_keeps_its_module(folder: Path) -> None:
    for name in ("Thing", "class_parameters", "class_resources"):
        trainable = load(folder, name)
        assert (trainable.config_type, trainable.can_evaluate) == (None, True)


@dataclasses.dataclass
class Config:
    lr: float = 0.1


class Annotated(tune.Trainable):
    config: Config

    def step(self) -> dict:
        return {"score": 1.0}


def test_a_pickled_class_takes_a_plain_dict_too() -> None:
    pickled = pickle_function(Annotated, "trainable.pkl")
    assert load_trainable("trainable.pkl:train", (), [pickled]).config_type is None


def test_an_argument_that_nothing_gives_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match=r"takes \(config, data\); a trainable takes one argument"):
        load(folder, "missing")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trainer", "is TorchTrainer, a Trainer of Ray Train, which Ray Tune takes no more: write def train(config)"),
        ("TorchTrainer", "is the class TorchTrainer, a Trainer of Ray Train"),
        ("whole", "is Tuner, a whole search of Ray Tune: name the function or class that it runs"),
        ("thing", "is an object of the class Thing: name the class itself"),
        ("Net", "is the class Net, a model of torch"),
        ("net", "is Net, a model of torch: write def train(config) that makes it"),
        ("estimator", "is LogisticRegression, an estimator of scikit-learn"),
        ("Plain", "is a class that does not derive from ray.tune.Trainable: derive it, or write def train(config)"),
        ("name", "is a text: a name that is registered with Ray is unknown here"),
        ("number", "is a int, not a function or a ray.tune.Trainable: write def train(config)"),
        ("Empty", "is the class Empty, which has no step(): write one"),
        ("remote", "is RemoteFunction, remote in Ray: remove @ray.remote"),
        ("Actor", "remote in Ray: remove @ray.remote"),
        ("later", "is an async function"),
    ],
)
def test_what_is_none_is_named_with_the_remedy(folder: Path, name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(folder, name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what it asks for, and where it ends ---


TWO_STEPS = {"kind": "asha", "time_attr": "training_iteration", "max_t": 2, "grace_period": 2}


def plan(folder: Path, name: str, **keys: Any) -> Plan:
    experiment = {
        "trainable": f"some_kinds.py:{name}",
        "search_space": {"x": {"randint": [1, 3]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 0},
        **keys,
    }
    return validate(experiment)


def asked(folder: Path, name: str, configs: list[dict[str, Any]]) -> dict[str, Any] | None:
    return requested(load(folder, name).train, configs)


def test_what_trainables_ask_for(folder: Path) -> None:
    assert asked(folder, "plain", [{}]) is None
    assert asked(folder, "Thing", [{}]) is None
    assert asked(folder, "resources", [{}]) == {"cpu": 2, "gpu": 1}
    assert asked(folder, "Small", [{}]) == {"cpu": 3, "gpu": 0}
    assert asked(folder, "class_resources", [{}]) == {"cpu": 4, "gpu": 0, "memory_gib": 1, "custom": {"disk": 2}}
    assert asked(folder, "depends", [{"x": 1}, {"x": 1}]) == {"cpu": 1, "gpu": 0}
    with pytest.raises(ValueError, match="depend on the configuration"):
        asked(folder, "depends", [{"x": 1}, {"x": 2}])
    with pytest.raises(ValueError, match="are 2 bundles"):
        asked(folder, "bundles", [{}])


def test_the_experiment_wins_over_what_the_trainable_asks_for(folder: Path) -> None:
    small = plan(folder, "Small", scheduler=TWO_STEPS, resources={"cpu": 1})
    assert (small.request, small.notes) == (
        {"CPU": 1},
        ("resources.cpu is 1, as in the experiment; the trainable asks for 3",),
    )
    assert ("", small.notes[0]) in description(small)
    depends = plan(folder, "depends", resources={"cpu": 1, "gpu": 0})
    assert depends.request == {"CPU": 1}
    assert depends.notes == (
        "the resources that the trainable asks for do not count: they depend on the configuration, and all trials of a "
        "run get the same",
    )


@pytest.mark.parametrize(
    ("name", "words"), [("depends", "depend on"), ("bundles", "2 bundles"), ("broken", "ZeroDivisionError")]
)
def test_resources_that_cannot_be_given_are_a_problem(folder: Path, name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(folder, name)
    assert "resources: the resources that the trainable asks for cannot be given: " in str(caught.value)
    assert words in str(caught.value)
    assert "write cpu and gpu into resources" in str(caught.value)


def test_a_class_that_nothing_ends_is_refused(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        plan(folder, "Thing")
    assert str(caught.value) == (
        "<python>: scheduler: Thing.step() returns no done: True, and scheduler fifo ends no trial: it would run for "
        "ever; write scheduler: {kind: asha, time_attr: training_iteration, max_t: N, grace_period: N}, or a limit "
        "into budget"
    )
    ends = "a trial ends where step() returns done: True; scheduler fifo ends none"
    assert plan(folder, "Ends").notes == (ends,)
    limited = plan(folder, "Thing", budget={"wall_clock": "1m"})
    assert limited.notes == (
        "nothing in Thing returns done: True, and scheduler fifo ends no trial: the budget ends all of them",
    )
    with pytest.raises(InputError, match="it would run for ever"):
        plan(folder, "Thing", budget={"gpu_hours": 1}, resources={"gpu": 0})
    assert plan(folder, "Thing", scheduler=TWO_STEPS).notes == ()
    with pytest.raises(InputError, match=r"resources.workers: must be 1: Ends is a class, and the workers of a trial"):
        plan(folder, "Ends", resources={"workers": 2})
    assert plan(folder, "partial", search_space={"lr": {"uniform": [0, 1]}}).notes == ()


# --- a class in one process ---


def test_a_class_reports_each_step_until_it_is_done(toys: Path) -> None:
    reports, failure = here(toys, "AddsUp", {"x": 2.0, "log": str(toys)})
    assert failure == ""
    assert reports == [{"score": 2.0 * n, "iteration": n - 1} for n in (1, 2, 3)]
    assert (toys / f"cleaned-abc-{os.getpid()}").read_text() == "x"


def test_a_class_that_is_stopped_cleans_up(toys: Path) -> None:
    reports, failure = here(toys, "Endless", {"x": 2.0, "log": str(toys)}, last=4)
    assert (len(reports), failure) == (4, "")
    assert (toys / f"cleaned-abc-{os.getpid()}").read_text() == "x"


class Once(tune.Trainable):
    def setup(self, config: dict) -> None:
        assert Path.cwd() == config["cwd"]
        assert config["cwd"] != Path(self.logdir)
        self.seen: Any = None

    def step(self) -> dict:
        return {
            "seen": self.seen,
            "at": self.training_iteration,
            "done": True,
            "should_checkpoint": True,
            "id": self.trial_id,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {"saved": 1}


class Loads(Once):
    def load_checkpoint(self, checkpoint: Any) -> None:
        self.seen = checkpoint


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a trial of `ClassTrial` meets: the checkpoint that it starts from, and what it reported."""
    seen = SimpleNamespace(checkpoint=None, reports=[], metadata={})

    def report(metrics: dict, checkpoint: Any = None) -> None:
        seen.reports.append(metrics)
        checkpoint.to_directory(str(tmp_path / "kept"))
        seen.checkpoint = tune.Checkpoint.from_directory(str(tmp_path / "kept"))

    context = SimpleNamespace(
        get_trial_dir=lambda: str(tmp_path / "trial"),
        get_trial_id=lambda: "abc",
        get_trial_name=lambda: "Trial_abc",
        get_trial_resources=lambda: None,
    )
    monkeypatch.setattr(tune, "report", report)
    monkeypatch.setattr(tune, "get_checkpoint", lambda: seen.checkpoint)
    monkeypatch.setattr(tune, "get_context", lambda: context)
    return seen


def test_a_class_continues_with_its_state_and_its_count(session: SimpleNamespace) -> None:
    ClassTrial(Loads)({"cwd": Path.cwd()})
    ClassTrial(Loads)({"cwd": Path.cwd()})
    assert session.reports == [{"seen": None, "at": 0, "id": "abc"}, {"seen": {"saved": 1}, "at": 1, "id": "abc"}]


def test_a_class_that_saves_and_cannot_load_says_so(session: SimpleNamespace) -> None:
    ClassTrial(Once)({"cwd": Path.cwd()})
    with pytest.raises(TypeError, match="Once has save_checkpoint and no load_checkpoint: the trial cannot continue"):
        ClassTrial(Once)({"cwd": Path.cwd()})


# --- interfaces of earlier versions ---


def interfaces() -> tuple[Any, ...]:
    reports = (tune.report, ray.train.report, ray.train.get_checkpoint, ray.air.session.report)
    return (*reports, hasattr(tune, "checkpoint_dir"))


def test_they_are_there_while_a_trial_runs_only() -> None:
    before = interfaces()
    with understood():
        assert tune.report is not before[0]
        assert hasattr(tune, "checkpoint_dir")
    assert interfaces() == before


@pytest.mark.parametrize(
    ("name", "count"), [("train_report", 3), ("session_report", 1), ("keywords", 2), ("checkpoint_dir_of_ray_1", 4)]
)
def test_they_mean_what_they_meant(toys: Path, capfd: pytest.CaptureFixture[str], name: str, count: int) -> None:
    reports, failure = here(toys, name, {"x": 2.0})
    assert failure == ""
    assert [r["score"] for r in reports] == [2.0 * n for n in range(1, count + 1)]
    assert capfd.readouterr().err.count("earlier versions of Ray") == 1


def test_what_was_used_is_told_once() -> None:
    assert old_interfaces.news() == ""
    old_interfaces.note("a", "b")
    told = old_interfaces.news()
    assert told == "the trainable uses interfaces of earlier versions of Ray, which run as before: write b instead of a"
    old_interfaces.note("a", "b")
    assert old_interfaces.news() == ""
    assert old_interfaces.is_known(told, ["other", told])
    assert not old_interfaces.is_known(told, ["other"])


def test_what_was_saved_in_vain_is_deleted() -> None:
    with understood():
        with tune.checkpoint_dir(step=1) as folder:
            Path(folder, "state").write_text("1")
        assert Path(folder, "state").exists()
    assert not Path(folder).exists()
    with understood(), pytest.raises(RuntimeError), tune.checkpoint_dir(step=1) as folder:
        raise RuntimeError
    assert not Path(folder).exists()


def scaled(config: dict[str, Any], data: list[int]) -> None:
    tune.report({"score": config["x"] * sum(data)})


@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial, lambda f: tune.with_resources(f, {"cpu": 1})])
def test_a_pickle_holds_the_values_of_with_parameters(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not references to the object store of a session, which a later search and a resume do not have."""
    pickled = pickle_function(wrap(tune.with_parameters(scaled, data=[1, 2])), "code/trainable.pkl")
    reported: list[Any] = []
    monkeypatch.setattr(tune, "report", reported.append)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)  # as in the process of a trial
    load_trainable("code/trainable.pkl:scaled", (), (pickled,)).train({"x": 3})
    assert reported == [{"score": 9}]


def test_values_of_a_session_that_has_ended_are_missed_at_once() -> None:
    bound = tune.with_parameters(scaled, data=[1, 2])
    registry = inspect.getclosurevars(bound).nonlocals["parameter_registry"]
    registry.references = dict.fromkeys(registry.to_flush, "a reference")
    with pytest.raises(InputError, match=r"in a Ray session that has ended; call tune\.with_parameters again"):
        pickle_function(bound, "code/trainable.pkl")


def test_ray_keeps_no_parameters_of_a_trial_that_is_over() -> None:
    hooks = ray._private.worker._post_init_hooks
    before = list(hooks)
    with parameters_released():
        tune.with_parameters(functools.partial(print), data=1)
        assert len(hooks) == len(before) + 1
    assert hooks == before
