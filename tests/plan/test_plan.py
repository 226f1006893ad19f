"""What will happen: trials, rungs, placement, disk."""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import tuner.trainable.trainable
from tests.packaging.test_shipped import marked
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import Autoscaler, Cluster, Node, NodeType
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.provenance import resolved_spec
from tuner.trainable.trainable import Trainable

ROOT = Path(__file__).parents[2]
GIB = 2.0**30
CPUS = Cluster((Node("a", {"CPU": 4.0, "GPU": 0.0, "memory": 8 * GIB}),))
GPUS = Cluster((Node("a", {"CPU": 8.0, "GPU": 2.0, "memory": 64 * GIB}),))
H100S = Cluster(
    (Node("a", {"CPU": 8.0, "GPU": 2.0, "accelerator_type:H100": 1.0}), Node("b", {"CPU": 8.0, "GPU": 2.0}))
)
MIXED = Cluster((Node("a", {"CPU": 16.0}), Node("b", {"CPU": 4.0, "GPU": 4.0})), "10.0.0.1:6379")
HEAD = Node("head", {"CPU": 0.0}, is_head=True)
SPOT = NodeType("spot", {"CPU": 4.0, "GPU": 1.0}, 8)
GROWING = Cluster((HEAD,), "10.0.0.1:6379", Autoscaler((SPOT,), 8))
BASE: dict[str, Any] = {
    "trainable": "t_plan.py:train",
    "search_space": {"lr": {"loguniform": [1e-4, 0.1]}, "opt": {"choice": ["sgd", "adam"]}},
    "objective": {"metric": "loss", "mode": "min"},
}
FINITE = {"search_space": {"a": {"choice": [1, 2, 3]}, "b": {"randint": [0, 2]}}}


@pytest.fixture(autouse=True)
def folder(user_folder: Path) -> Path:
    (user_folder / "t_plan.py").write_text("def train(config): raise SystemExit('a trial ran')\n")
    return user_folder


def plan(cluster: Cluster = CPUS, **extra: Any) -> Plan:
    return make_plan(load_experiment(BASE | extra), cluster)


def problems(cluster: Cluster = CPUS, **extra: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        plan(cluster, **extra)
    return [str(problem).removeprefix("<python>: ") for problem in caught.value.problems]


def described(plan: Plan, heading: str) -> str:
    """The text under ``heading``, with the lines that continue it."""
    lines = description(plan)
    start = [name for name, _ in lines].index(heading)
    end = next((i for i, (name, _) in enumerate(lines) if i > start and name), len(lines))
    return "\n".join(text for _, text in lines[start:end])


@pytest.mark.parametrize(
    ("extra", "trials"),
    [
        ({}, 20),
        ({"budget": {"trials": 3}}, 3),
        (FINITE, 20),
        (FINITE | {"search": {"kind": "grid"}}, 6),
        (FINITE | {"search": {"kind": "grid"}, "budget": {"trials": 4}}, 4),
        (
            {"search_space": {"a": {"grid_search": [1, 2]}, "b": {"grid_search": [1, 2, 3]}, "c": {"uniform": [0, 1]}}},
            6,
        ),
        ({"search": {"kind": "optuna"}}, 20),
    ],
)
def test_trials(extra: dict[str, Any], trials: int) -> None:
    assert plan(**extra).trials == trials


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        (FINITE | {"budget": {"trials": 6}}, "6"),
        (FINITE | {"budget": {"trials": 7}}, "7, more than the 6 configurations there are: the search ends after them"),
        (
            FINITE | {"budget": {"trials": 7}, "search": {"kind": "random"}},
            "7, more than the 6 configurations there are: some run twice",
        ),
        ({"budget": {"trials": 10**6}}, "1000000"),
        (FINITE | {"search": {"kind": "grid"}}, "6"),
    ],
)
def test_the_note_on_trials(extra: dict[str, Any], note: str) -> None:
    assert described(plan(**extra), "trials") == note


def test_a_grid_never_runs_a_configuration_twice() -> None:
    """Grid search ends after every combination once, whatever ``budget.trials`` says."""
    lines = described(plan(**FINITE, search={"kind": "grid"}, budget={"trials": 10}), "trials")
    assert "twice" not in lines


def test_the_seed_is_the_given_one_or_drawn() -> None:
    assert plan(search={"kind": "random", "seed": 7}).seed == 7
    assert plan(search={"kind": "random", "seed": 0}).seed == 0
    unset = plan(search={"kind": "random"})
    assert described(unset, "search").splitlines()[0].endswith(", seed drawn when the search starts")
    assert unset.as_json()["seed"] is None
    assert 0 <= plan().seed < 2**32
    assert len({plan().seed for _ in range(5)}) > 1


@pytest.mark.parametrize(
    ("cluster", "resources", "request_", "slots"),
    [
        (CPUS, {}, {"CPU": 1.0}, 4),
        (CPUS, {"gpu": "auto"}, {"CPU": 1.0}, 4),
        (CPUS, {"cpu": 2}, {"CPU": 2.0}, 2),
        (CPUS, {"cpu": 0.5}, {"CPU": 0.5}, 8),
        (CPUS, {"memory_gib": 3}, {"CPU": 1.0, "memory": 3 * GIB}, 2),
        (GPUS, {}, {"CPU": 1.0, "GPU": 1.0}, 2),
        (GPUS, {"gpu": 0}, {"CPU": 1.0}, 8),
        (GPUS, {"gpu": 0.25}, {"CPU": 1.0, "GPU": 0.25}, 8),
        (GPUS, {"gpu": 0.4}, {"CPU": 1.0, "GPU": 0.4}, 4),
        (GPUS, {"gpu": 2}, {"CPU": 1.0, "GPU": 2.0}, 1),
        (MIXED, {}, {"CPU": 1.0, "GPU": 1.0}, 4),
        (MIXED, {"gpu": 0}, {"CPU": 1.0}, 10),  # 20 fit, 10 trials
        (MIXED, {"cpu": 3, "gpu": 1}, {"CPU": 3.0, "GPU": 1.0}, 1),
        (CPUS, {"workers": 2}, {"CPU": 1.0}, 2),
        (CPUS, {"workers": 3, "strategy": "spread"}, {"CPU": 1.0}, 1),
        (MIXED, {"gpu": 2, "workers": 2}, {"CPU": 1.0, "GPU": 2.0}, 1),
        (H100S, {"accelerator": "H100"}, {"CPU": 1.0, "GPU": 1.0, "accelerator_type:H100": 0.001}, 2),
    ],
)
def test_placement(cluster: Cluster, resources: dict[str, Any], request_: dict[str, float], slots: int) -> None:
    made = plan(cluster, resources=resources, budget={"trials": 10})
    assert dict(made.request) == request_
    assert made.slots == slots
    assert described(made, "at once").startswith(f"{slots} trial")


@pytest.mark.parametrize(
    ("cluster", "resources", "key", "words"),
    [
        (CPUS, {"cpu": 5}, "resources.cpu", ["needs 5 CPU", "has 4 CPU on any node", "ask for less"]),
        (CPUS, {"gpu": 1}, "resources.gpu", ["needs 1 GPU", "no GPU", "gpu: 0 or gpu: auto"]),
        (CPUS, {"gpu": 0.5}, "resources.gpu", ["needs 0.5 GPU", "no GPU"]),
        (CPUS, {"memory_gib": 9}, "resources.memory_gib", ["needs 9.0 GiB memory", "has 8.0 GiB memory"]),
        (CPUS, {"custom": {"tpu": 2}}, "resources.custom.tpu", ["needs 2 tpu", "no tpu", "add a node"]),
        (GPUS, {"gpu": 3}, "resources.gpu", ["needs 3 GPU", "has 2 GPU on any node"]),
        (MIXED, {"cpu": 8, "gpu": 1}, "resources", ["8 CPU, 1 GPU on one node", "no node has all of it", "10.0.0.1"]),
        (Cluster(()), {}, "resources.cpu", ["1 CPU"]),
        (CPUS, {"workers": 5}, "resources.workers", ["5 workers of 1 CPU each", "room for 4", "ask for fewer"]),
        (GPUS, {"accelerator": "H100"}, "resources.accelerator", ["needs H100", "no H100 on any node"]),
        (
            GROWING,
            {"gpu": 8},
            "resources.gpu",
            [
                "needs 8 GPU",
                "has no GPU on any node, and its autoscaler may start only spot (4 CPU, 1 GPU each, at most 8)",
            ],
        ),
        (GROWING, {"gpu": 1, "workers": 9}, "resources.workers", ["9 workers", "room for 8"]),
        (GROWING, {"custom": {"tpu": 1}}, "resources.custom.tpu", ["no tpu on any node, and its autoscaler"]),
    ],
)
def test_what_can_never_be_placed(cluster: Cluster, resources: dict[str, Any], key: str, words: list[str]) -> None:
    (message,) = problems(cluster, resources=resources)
    assert message.startswith(f"{key}: can never be placed: ")
    assert all(word in message for word in words), message


def test_what_an_autoscaler_may_start_counts_and_is_waited_for() -> None:
    made = plan(GROWING, budget={"trials": 10})
    assert dict(made.request) == {"CPU": 1.0, "GPU": 1.0}  # gpu: auto
    assert made.slots == 8
    assert made.waits_for == "spot (4 CPU, 1 GPU each, at most 8)"
    assert made.slots_on((HEAD,)) == 5
    assert "its autoscaler adds up to 8 nodes: spot" in described(made, "at once")
    there = Cluster((HEAD, Node("a", SPOT.resources)), "10.0.0.1:6379", GROWING.autoscaler)
    assert plan(there, budget={"trials": 10}).waits_for == ""
    assert plan(CPUS).waits_for == ""
    assert plan(GROWING, budget={"trials": 3}).slots_on((HEAD,)) == 3


@pytest.mark.parametrize(("name", "checked"), [("lr", 1000), ("rate", 1)])
def test_many_choices_are_checked_by_one_schema_until_one_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, checked: int
) -> None:
    (folder / "t_typed.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    lr: int = 1\n"
        "def train(config: Config): ...\n"
    )
    calls, schemas = [], []
    asked, adapter = Trainable.config_problems, tuner.trainable.trainable.TypeAdapter  # type: ignore[attr-defined]
    monkeypatch.setattr(Trainable, "config_problems", lambda self, values: calls.append(values) or asked(self, values))
    monkeypatch.setattr(tuner.trainable.trainable, "TypeAdapter", lambda kind: schemas.append(kind) or adapter(kind))
    space = {name: {"choice": list(range(1000))}}
    with contextlib.nullcontext() if name == "lr" else pytest.raises(InputError, match="no such parameter"):
        plan(trainable="t_typed.py:train", search_space=space)
    assert checked <= len(calls) <= checked + 5  # and some that were drawn at random
    assert len(schemas) == 1


def test_a_fraction_of_more_than_one_gpu_is_refused() -> None:
    """Ray refuses GPU requests such as 1.5."""
    (message,) = problems(GPUS, resources={"gpu": 1.5})
    assert message.startswith("resources.gpu: ")


def test_what_contradicts_itself_is_refused() -> None:
    (message,) = problems(GPUS, resources={"accelerator": "H100", "gpu": 0})
    assert message.endswith("resources.accelerator: H100 is a kind of GPU, and gpu is 0: ask for gpu above 0")
    (message,) = problems(GPUS, resources={"strategy": "spread"})
    assert message.endswith("resources.strategy: spread places the workers of one trial, and workers is 1")


def test_a_trial_of_several_workers_is_described() -> None:
    made = plan(CPUS, resources={"workers": 2, "strategy": "spread"})
    assert described(made, "a trial takes") == "2 workers on as many nodes as can be, each 1 CPU"


def test_defaults_that_the_constraints_forbid_are_named() -> None:
    space = {"x": {"uniform": [0, 1], "default": 0.75}, "y": {"uniform": [0, 1]}}
    limited: dict[str, Any] = {"search_space": space, "constraints": ["x + y < 0.7"]}
    _, notice = plan(**limited).notices  # and one of what is never read
    assert notice.startswith("no configuration with all defaults satisfies the constraints (x + y < 0.7): none is")
    finite = {"x": {"choice": [0.1, 0.75], "default": 0.75}, "y": {"choice": [0.1, 0.2]}}
    for other in ({"constraints": ["x + y < 0.8"]}, {"search_space": finite, "search": {"kind": "grid"}}):
        assert len(plan(**limited | other).notices) == 1


def test_rungs_and_what_they_save() -> None:
    scheduler = {"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": 1, "reduction_factor": 3}
    made = plan(scheduler=scheduler, budget={"trials": 27})
    first, second, last = (rung["expected_trials"] for rung in made.as_json()["rungs"])
    assert first == 27 > second > 9
    assert second > last > 3
    epochs = first + 2 * second + 6 * last
    assert described(made, "rungs").splitlines() == [
        "epoch    1: about 27 trials reach it",
        f"epoch    3: about {second:.0f} trials reach it",
        f"epoch    9: about {last:.0f} trials reach it",
        f"about {epochs:.0f} of 243 epochs in all: {1 - epochs / 243:.0%} saved by stopping early",
    ]
    assert made.required_metrics == (("loss", "objective.metric"), ("epoch", "scheduler.time_attr"))
    assert made.task.max_t == 9
    assert "rungs" not in dict(description(plan()))
    assert plan().required_metrics == (("loss", "objective.metric"),)


def test_no_more_trials_reach_a_rung_than_there_are() -> None:
    made = plan(scheduler={"kind": "asha", "max_t": 81, "grace_period": 1, "reduction_factor": 3}, budget={"trials": 1})
    assert [rung["expected_trials"] for rung in made.as_json()["rungs"]] == [1] * 5
    assert described(made, "rungs").endswith("0% saved by stopping early")
    assert described(made, "rungs").startswith("training_iteration    1: about 1 trial reaches it")


@pytest.mark.parametrize(
    ("keep", "trials", "count"),
    [
        ({}, 20, 4 * 4 + 5 * 2 + 1),
        ({"keep_per_trial": 2, "keep_trials": 3}, 20, 4 * 5 + 3 * 3 + 1),
        ({}, 2, 2 * 4 + 2 * 2 + 1),
        ({"keep_trials": 1}, 1, 1 * 4 + 1 * 2 + 1),
    ],
)
def test_checkpoints(keep: dict[str, int], trials: int, count: int) -> None:
    made = plan(checkpoints=keep, budget={"trials": trials})
    assert made.checkpoints == count
    assert described(made, "checkpoints").startswith(f"at most {count} on disk")
    assert "known at the first report" in described(made, "checkpoints")


def test_the_size_of_checkpoints(folder: Path) -> None:
    (folder / "sized.py").write_text(
        "def train(config): ...\ndef checkpoint_bytes(config): return 1024 if config['opt'] == 'sgd' else 2048\n"
    )
    made = plan(trainable="sized:train", budget={"trials": 1})
    assert made.checkpoint_bytes == 2048
    assert "up to 2.0 KiB each: 14.0 KiB" in described(made, "checkpoints")


def test_the_whole_description() -> None:
    made = plan(
        GPUS,
        name="n",
        search={"kind": "optuna", "sampler": "gp", "seed": 3},
        budget={"trials": 4, "wall_clock": "1h30m", "target": 0.25, "gpu_hours": 2},
    )
    text = dict(line for line in description(made) if line[0])
    assert text["experiment"] == "n"
    assert text["trainable"] == "t_plan.py:train"
    assert text["search space"] == "2 parameters, infinitely many configurations"
    assert described(made, "search space").splitlines()[1:] == [
        "lr: loguniform [0.0001, 0.1]",
        "opt: choice [sgd, adam]",
    ]
    assert text["objective"] == "min loss"
    assert text["search"].startswith(
        "optuna, sampler gp, n_startup_trials 1, n_ei_candidates 8, random_fraction 0.3333,"
    )
    assert text["search"].endswith(", seed 3")
    assert text["scheduler"] == "fifo"
    assert text["ends early at"] == "wall_clock 1h30m00s, gpu_hours 2, target 0.25"
    assert text["a trial takes"] == "1 CPU, 1 GPU"
    assert text["at once"] == "2 trials on this machine: 8 CPU, 2 GPU, 64.0 GiB memory"
    assert json.loads(json.dumps(made.as_json()))["configurations"] is None
    assert dict(description(plan()))["ends early"] == "no: the budget has no limit but the number of trials"


@pytest.mark.parametrize(
    ("search", "modelled"),
    [
        ({"kind": "random"}, "0 of 20 suggestions modelled from results"),
        ({"kind": "optuna", "sampler": "qmc"}, "0 of 20 suggestions modelled from results"),
        ({"kind": "optuna", "sampler": "gp"}, "about 11 of 20 suggestions modelled from results"),
        ({"kind": "optuna"}, "about 7 of 20 suggestions modelled from results"),
        ({"kind": "optuna", "n_startup_trials": 20}, "0 of 20 suggestions modelled from results"),
        ({"kind": "optuna", "sampler": "nsga2"}, "about 11 of 20 suggestions modelled from results"),
        ({"kind": "hyperopt"}, "about 11 of 20 suggestions modelled from results"),
        ({"kind": "bohb"}, "about 10 of 20 suggestions modelled from results"),
        ({"kind": "ray", "class_path": "ray.tune.search.hyperopt:HyperOptSearch"}, "its class decides how many"),
    ],
)
def test_how_many_suggestions_will_be_modelled(search: dict[str, Any], modelled: str) -> None:
    """Of 20 trials with 4 at once; the searches with a model have one after a third of them."""
    made = plan(search=search, budget={"trials": 20})
    assert described(made, "search").splitlines()[1].startswith(modelled)
    assert made.modelled is None or modelled.startswith((f"{made.modelled:.0f} ", f"about {made.modelled:.0f} "))
    assert made.as_json()["modelled"] == made.modelled


@pytest.mark.parametrize("kind", ["optuna", "hyperopt"])
def test_defaults_that_follow_the_number_of_trials_are_recorded(kind: str) -> None:
    """A search that is extended is replayed with the values that it began with."""
    resolved = resolved_spec(plan(search={"kind": kind}, budget={"trials": 20}), {})
    name = "n_startup_trials" if kind == "optuna" else "n_initial_points"
    assert resolved["search"][name] == 6
    many = resolved_spec(plan(search={"kind": kind}, budget={"trials": 200}), {})
    assert many["search"][name] == (10 if kind == "optuna" else 20)


@pytest.mark.parametrize(
    ("search", "scheduler", "mixes"),
    [
        ({"kind": "optuna", "sampler": "cmaes"}, {"kind": "asha"}, True),
        ({"kind": "optuna", "sampler": "cmaes"}, {"kind": "fifo"}, False),
        ({"kind": "optuna", "sampler": "tpe"}, {"kind": "hyperband"}, False),
        ({"kind": "hyperopt"}, {"kind": "asha", "variant": "promotion"}, False),
        ({"kind": "ray", "class_path": "ray.tune.search.hyperopt:HyperOptSearch"}, {"kind": "hyperband"}, True),
    ],
)
def test_the_plan_says_where_values_of_different_steps_are_compared(
    search: dict[str, Any], scheduler: dict[str, Any], mixes: bool
) -> None:
    text = described(plan(search=search, scheduler=scheduler), "search")
    assert ("at different steps" in text) == mixes


def test_one_is_not_many() -> None:
    made = plan(search_space={"a": {"choice": [1]}}, budget={"trials": 1})
    assert dict(description(made))["search space"] == "1 parameter, 1 configuration"
    assert described(made, "at once").startswith("1 trial on")
    assert "the 1 configuration there is" in described(plan(search_space={"a": {"choice": [1]}}), "trials")


def test_options_are_shown_as_yaml_writes_them() -> None:
    pbt = {"kind": "pbt", "mutate": ["lr"], "perturbation_factors": [1.5, 0.5]}
    text = dict(description(plan(scheduler=pbt)))["scheduler"]
    assert "mutate [lr]" in text
    assert "perturbation_factors [1.5, 0.5]" in text
    plug_in = {"kind": "ray", "class_path": "ray.tune.schedulers:MedianStoppingRule", "options": {"hard_stop": False}}
    text = dict(description(plan(scheduler=plug_in)))["scheduler"]
    assert text.startswith("ray, class_path ray.tune.schedulers:MedianStoppingRule, options {hard_stop: false}, ")


def test_points_to_evaluate_are_counted() -> None:
    points = [{"lr": 0.01, "opt": "sgd"}, {"lr": 0.1, "opt": "adam"}]
    for count, words in ((1, "1 point to evaluate first"), (2, "2 points to evaluate first")):
        made = plan(search={"kind": "random", "points_to_evaluate": points[:count]})
        assert words in dict(description(made))["search"]


def test_conditions_are_described() -> None:
    made = plan(search_space={"o": {"choice": ["a", "b"]}, "m": {"choice": [1, 2], "when": {"o": "a"}}})
    assert "m: choice [1, 2] when o is a" in described(made, "search space")
    assert made.as_json()["configurations"] == 3


def test_the_largest_numbers_are_described() -> None:
    made = plan(search_space={f"p{i}": {"randint": [0, 10**6]} for i in range(60)})
    assert isinstance(made.as_json()["configurations"], int)
    assert made.as_json()["configurations"] != math.inf


def test_a_space_with_sample_from(folder: Path) -> None:
    (folder / "computed_space.py").write_text(
        "from ray import tune\n"
        "def double(config): return 2 * config['a']\n"
        "SPACE = {'a': tune.choice([1, 2]), 'b': tune.sample_from(double)}\n"
    )
    made = plan(search_space="computed_space:SPACE")
    assert made.experiment.space_from_python == "computed_space:SPACE"
    assert "b: sample_from double" in described(made, "search space")
    (message,) = problems(search_space="computed_space:SPACE", search={"kind": "optuna"})
    assert message.startswith("search_space.b: sample_from belongs to search.kind grid or random")


def test_a_sample_from_that_fails_is_the_users_mistake(folder: Path) -> None:
    (folder / "failing_space.py").write_text(
        "from ray import tune\nSPACE = {'a': tune.choice([1]), 'b': tune.sample_from(lambda c: 1 / 0)}\n"
    )
    (message,) = problems(search_space="failing_space:SPACE")
    assert message.startswith("search_space")
    assert "ZeroDivisionError" in message


def test_a_checkpoint_bytes_that_fails_is_the_users_mistake(folder: Path) -> None:
    (folder / "sized_badly.py").write_text(
        "def train(config): ...\ndef checkpoint_bytes(config): return config['no']\n"
    )
    (message,) = problems(trainable="sized_badly:train")
    assert message.startswith("trainable: ")
    assert "KeyError" in message


def test_all_problems_at_once() -> None:
    found = problems(
        params={"lr": 1, "opt": "sgd"}, trainable="nowhere:train", resources={"cpu": 99}, search={"kind": "grid"}
    )
    assert sorted(text.split(": ")[0] for text in found) == [
        "params.lr",
        "params.opt",
        "resources.cpu",
        "search_space.lr",
        "trainable",
    ]


def test_every_value_of_a_typed_config_is_checked(folder: Path) -> None:
    (folder / "typed_plan.py").write_text(
        "import dataclasses\nfrom typing import Literal\n"
        "@dataclasses.dataclass\nclass Net:\n    width: int = 1\n"
        "@dataclasses.dataclass\nclass Config:\n    lr: float\n    opt: Literal['sgd', 'adam'] = 'sgd'\n"
        "    net: Net = dataclasses.field(default_factory=Net)\n    n: int = 1\n"
        "    def __post_init__(self):\n        if self.n > 100: raise ValueError('n is above 100')\n"
        "def train(config: Config): ...\n"
    )
    plan(trainable="typed_plan:train", params={"net": {"width": 3}})
    typed = {"trainable": "typed_plan:train"}
    lr = {"lr": {"uniform": [0, 1]}}
    (message,) = problems(**typed, search_space=lr | {"opt": {"choice": ["sgd", "adam", "lion"]}})
    assert message.startswith("search_space.opt: ")
    assert "'lion'" in message
    (message,) = problems(**typed, search_space=lr | {"net": {"width": {"uniform": [1, 2]}}})
    assert message.startswith("search_space.net.width: ")
    (message,) = problems(**typed, search_space=lr | {"net": {"widht": {"randint": [1, 2]}}})
    assert message.startswith("search_space.net.widht: ")
    assert "did you mean 'width'?" in message
    (message,) = problems(**typed, search_space=lr, params={"net": {"width": "3"}})
    assert message.startswith("params.net.width: ")
    (message,) = problems(**typed, search_space=lr | {"n": {"randint": [1, 1000]}})
    assert "n is above 100" in message
    (message,) = problems(**typed, search_space={"n": {"randint": [1, 10]}})
    assert "lr" in message
    assert "neither in params nor in search_space" in message


def test_params_and_space_may_share_a_group(folder: Path) -> None:
    plan(params={"net": {"depth": 3}}, search_space={"net": {"width": {"choice": [1, 2]}}})
    (message,) = problems(params={"net": {"width": 3}}, search_space={"net": {"width": {"choice": [1, 2]}}})
    assert message.startswith("params.net.width: is also in search_space (choice [1, 2]): keep one of them")
    (message,) = problems(params={"net": 3}, search_space={"net": {"width": {"choice": [1, 2]}}})
    assert message.startswith("params.net: ")


SHIPPED = sorted((ROOT / "experiments").rglob("*.yaml"))


@pytest.mark.parametrize("file", marked(SHIPPED, need_an_extra=pytest.mark.integrations))
def test_every_shipped_experiment_is_valid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    relative = file.relative_to(ROOT)
    made = make_plan(load_experiment(relative), GPUS)
    assert description(made)
    assert re.search(
        rf"^# python -m tuner (run|simulate)( .*)? {re.escape(str(relative))}\b", file.read_text(), re.MULTILINE
    )
    assert "yaml-language-server: $schema=" in file.read_text()
    if made.spec.resources.gpu in (0, "auto"):
        make_plan(load_experiment(relative), CPUS)
