"""The same domains as Ray Tune's, and Ray Tune's own ``param_space`` read unchanged."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import ray
from packaging.version import Version
from ray import tune
from ray.tune.search import sample as ray_sample

from tuner.errors import InputError
from tuner.spec.space import (
    Choice,
    Constant,
    Domain,
    Float,
    GridSearch,
    Integer,
    Normal,
    Space,
    python_only,
    space_from_param_space,
    to_yaml,
)

pytestmark = pytest.mark.filterwarnings("error")

PAIRS: list[tuple[Any, Domain]] = [
    (tune.uniform(-1, 2), Float(-1, 2)),
    (tune.quniform(0, 1, 0.25), Float(0, 1, 0.25)),
    (tune.loguniform(1e-4, 1), Float(1e-4, 1, None, True)),
    (tune.qloguniform(0.5, 4, 0.5), Float(0.5, 4, 0.5, True)),
    (tune.randn(1, 2), Normal(1, 2)),
    (tune.qrandn(1, 2, 0.5), Normal(1, 2, 0.5)),
    (tune.randint(-1, 3), Integer(-1, 3)),
    (tune.qrandint(0, 12, 4), Integer(0, 12, 4)),
    (tune.qrandint(0, 4, 1), Integer(0, 4, 1)),
    (tune.lograndint(1, 6), Integer(1, 6, None, True)),
    (tune.qlograndint(4, 16, 4), Integer(4, 16, 4, True)),
    (tune.choice(["a", 1, None]), Choice(("a", 1, None))),
]


@pytest.mark.parametrize(("theirs", "ours"), [pytest.param(*pair, id=str(pair[1])) for pair in PAIRS])
def test_same_values_with_the_same_probability(theirs: Any, ours: Domain) -> None:
    assert space_from_param_space({"p": theirs}).parameters[0].domain == ours
    count = 4000
    drawn = theirs.sample(size=count, random_state=np.random.default_rng(0))
    rng = np.random.default_rng(1)
    mine = [ours.sample(rng) for _ in range(count)]
    assert {type(value) for value in mine} <= {int, float, str, type(None)}
    plain = [value.item() if isinstance(value, np.generic) else value for value in drawn]
    if ours.count is None:
        assert all(ours.contains(value) for value in plain)
        deciles = np.linspace(0.1, 0.9, 9)
        if getattr(ours, "log", False):
            mine, plain = list(np.log(mine)), list(np.log(plain))
        spread = np.std(plain)
        np.testing.assert_allclose(np.quantile(mine, deciles), np.quantile(plain, deciles), atol=0.15 * spread)
    else:
        assert set(mine) == set(plain) == set(ours.values() or ())
        if getattr(ours, "q", None) and Version(ray.__version__) < Version("2.60"):
            return  # Ray 2.56 rounds more of the numbers to some of the values
        for value in set(plain):
            assert mine.count(value) / count == pytest.approx(plain.count(value) / count, abs=0.035)


def test_a_param_space_is_read_unchanged() -> None:
    marker = object()
    space = space_from_param_space(
        {
            "lr": tune.loguniform(1e-4, 1e-1),
            "net": {"layers": [tune.randint(1, 3), (tune.choice(["a"]), 5)], "width": {"grid_search": np.arange(2)}},
            "object": marker,
            "labels": {0: "cat", 1: "dog"},
            "pair": (1, 2),
            "double": tune.sample_from(lambda config: config["lr"] * 2),
            "old": tune.sample_from(lambda spec: spec.config.double + spec.config.lr),
            "none": tune.sample_from(lambda: 3),
            "weights": tune.choice([1, 1, 2]),
            "numpy": tune.choice(np.linspace(0, 1, 3)),
            "snapped": tune.qrandint(1, 10, 4),
            "single": tune.qrandint(3, 6, 4),
            "graded": ray_sample.Categorical([1, 2]).grid(),
        }
    )
    domains = {p.name: p.domain for p in space.parameters}
    assert domains["net.width"] == GridSearch((0, 1))
    assert domains["snapped"] == Integer(4, 8, 4)
    assert domains["single"] == Choice((4,))
    assert domains["object"] == Constant(marker)
    configuration = space.sample(np.random.default_rng(0))
    assert list(configuration)[:3] == ["lr", "net", "object"]
    assert isinstance(configuration["net"]["layers"][1], tuple)
    assert configuration["net"]["layers"][0] in (1, 2)
    assert configuration["net"]["layers"][1] == ("a", 5)
    assert configuration["object"] is marker
    assert configuration["labels"] == {0: "cat", 1: "dog"}
    assert configuration["double"] == configuration["lr"] * 2
    assert configuration["old"] == configuration["lr"] * 3
    assert configuration["none"] == 3
    assert type(configuration["numpy"]) is float
    assert space.violations(configuration) == []
    reasons = dict(python_only(space))
    assert set(reasons) >= {("object",), ("labels",), ("pair",), ("double",), ("weights",), ("net", "layers")}
    with pytest.raises(ValueError, match="object is a Python object"):
        to_yaml(space)


def test_what_cannot_be_read_is_named() -> None:
    class Custom(ray_sample.LogUniform):
        pass

    custom = tune.uniform(0, 1)
    custom.set_sampler(Custom(), allow_override=True)
    with pytest.raises(InputError) as caught:
        space_from_param_space({"a": {"b": custom}, "c": {"eval": "1"}, "d": tune.uniform(2, 1), "e": {1: custom}})
    assert [(p.key, p.message.split(":")[0]) for p in caught.value.problems] == [
        ("a.b", "its sampler Custom is not one of Ray Tune's own"),
        ("c", "{'eval'"),
        ("d", "the range is empty"),
        ("e", "the key 1 is not text"),
    ]
    with pytest.raises(InputError, match="the search space is empty"):
        space_from_param_space({})


def test_computed_values_that_wait_for_each_other() -> None:
    from ray.tune.search.variant_generator import RecursiveDependencyError

    space = space_from_param_space(
        {"a": tune.sample_from(lambda spec: spec.config.b), "b": tune.sample_from(lambda spec: spec.config.a)}
    )
    with pytest.raises(RecursiveDependencyError):
        space.sample(np.random.default_rng(0))


def test_reading_a_space_imports_neither_ray_nor_torch_nor_numpy() -> None:
    code = (
        "import sys, tuner.spec.space, tuner.searchers; print({'ray', 'torch', 'numpy', 'optuna'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert shown.stdout == "set()\n"


def test_a_param_space_with_a_yaml_form_survives_the_round_trip() -> None:
    from tuner.spec.document import Document
    from tuner.spec.space import read_space

    space = space_from_param_space({f"p{i}": theirs for i, (theirs, _) in enumerate(PAIRS)} | {"g": {"c": 1}})
    assert isinstance(space, Space)
    assert read_space(Document(to_yaml(space), "x"), (), []) == space
