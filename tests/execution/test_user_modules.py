"""Modules of the user that stay between trials: only if no trial can see in them that another was there."""

from __future__ import annotations

import importlib
import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tuner.execution.user_modules import Imported, forget, user_modules

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a module of this text."""
    monkeypatch.syspath_prepend(tmp_path)

    def loaded(text: str) -> ModuleType:
        (tmp_path / "module_of_user.py").write_text(textwrap.dedent(text))
        return importlib.import_module("module_of_user")

    yield loaded
    forget(user_modules((tmp_path,)))


EVERYTHING = """
    import dataclasses, enum, functools, logging, math, re, threading, typing
    from collections import OrderedDict, defaultdict, deque, namedtuple
    from decimal import Decimal
    from pathlib import Path

    import numpy as np
    import torch
    import torch.backends.cudnn as cudnn
    from numpy import exp, mean
    from pydantic import BaseModel
    from ray import tune
    from torch import nn
    from torchvision.transforms import v2

    T = typing.TypeVar("T")
    HERE, PATTERN, LOG, LOCK = Path(__file__), re.compile("a"), logging.getLogger("mine"), threading.Lock()
    NUMBERS = [1, 2.5, float("nan"), {"a": {1, 2}}, (3, None), deque([1]), defaultdict(list), OrderedDict()]
    NUMBERS.append(NUMBERS)
    TABLE, WEIGHTS, LARGE = np.arange(6.0), torch.ones(3), np.zeros(1000)
    MEANS = torch.tensor([0.5] * 3)
    SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "n": tune.choice([1, 2])}
    DEVICE, KIND = torch.device("cpu"), torch.float32
    LEAST, BYTES = torch.finfo(torch.float32), np.dtype("float32")
    MOVES = v2.Compose([v2.RandomHorizontalFlip(), v2.ToImage()])
    Point = namedtuple("Point", "x y")
    ORIGIN = Point(0, 0)
    EVENT = threading.Event()

    class Color(enum.Enum):
        RED = 1

    class Level(enum.IntEnum):
        LOW = 1

    @dataclasses.dataclass
    class Config:
        lr: float = 0.1
        layers: list = dataclasses.field(default_factory=list)

    class Model(BaseModel):
        lr: float = 0.1

    class Net(nn.Module):
        shared = {"calls": 0}
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

    class Slotted:
        __slots__ = ("a", "__b")
        def __init__(self):
            self.a, self.__b = 1, [2]
        @property
        def c(self): return 1
        @staticmethod
        def d(): pass
        @functools.cached_property
        def e(self): return 1

    class Attributes(dict):
        __getattr__ = dict.get
        __setattr__ = dict.__setitem__

    class Counter:
        def __init__(self):
            self.n = 0
        def step(self):
            self.n += 1

    class Limit:
        def __get__(self, instance, owner=None): return self
        def __set__(self, instance, value): self.value = value

    class Holder:
        limit = Limit()

    CALLS, step, TOTAL = Attributes(n=0), Counter().step, Decimal(0)
    SLOTTED = Slotted()
    NET = Net()
    half = functools.partial(math.pow, 2)

    @functools.lru_cache
    def cached(n, seen=[]):
        return n

    def counter():
        calls = [0]
        def count():
            calls[0] += 1
        return count

    count = counter()

    @torch.no_grad()
    def score(model, state={}):
        state["n"] = 1
"""


def test_a_module_that_is_used_and_not_changed_stays(load: Load, tmp_path: Path) -> None:
    module = load(EVERYTHING)
    imported = Imported((tmp_path,))
    assert not imported.changed()
    module.cached(3)
    module.Model(lr=0.2)
    module.Config(lr=0.3).layers.append(1)
    module.Net().layer(module.torch.ones(1, 2, device=module.DEVICE))
    module.LOG.info("text")
    with module.LOCK:
        pass
    assert not imported.changed()
    assert module.cached.cache_info().currsize == 0  # the next trial computes it anew


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("new = 1", "new"),
        ("NUMBERS[3]['a'].add(3)", "NUMBERS"),
        ("NUMBERS[5].append(1)", "NUMBERS"),
        ("TABLE[2] = 9", "TABLE"),
        ("WEIGHTS.add_(1)", "WEIGHTS"),
        ("NET.layer.weight.data.zero_()", "NET"),
        ("NET.eval()", "NET"),
        ("Net.shared['calls'] += 1", "Net"),
        ("Net.forward = print", "Net"),
        ("Config.lr = 2", "Config"),
        ("SLOTTED._Slotted__b.append(1)", "SLOTTED"),
        ("SLOTTED.a = 2", "SLOTTED"),
        ("cached.__wrapped__.__defaults__[0].append(1)", "cached"),
        ("count()", "count"),
        ("score(None)", "score"),
        ("EVENT.set()", "EVENT"),
        ("KIND = torch.float64", "KIND"),
        ("MOVES.transforms[0].p = 0.1", "MOVES"),
        ("SPACE['lr'].lower = 1", "SPACE"),
        ("Color.RED.extra = 1", None),
        ("step()", "step"),
        ("CALLS.n += 1", "CALLS"),
        ("TOTAL = TOTAL + 1; TOTAL = TOTAL + 1; TOTAL = TOTAL + 1", "TOTAL"),
        ("HERE = HERE / 'a'", "HERE"),
        ("LOCK.acquire()", "LOCK"),
        ("vars(Holder)['limit'].value = 9", "Holder"),
        ("__private = []", None),
    ],
)
def test_what_a_trial_changed_is_named(load: Load, tmp_path: Path, change: str, named: str | None) -> None:
    module = load(EVERYTHING)
    imported = Imported((tmp_path,))
    exec(change, vars(module))
    vars(module).pop("__builtins__", None)
    expected = f"a trial changed module_of_user.{named}" if named else ""
    assert imported.changed() == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NUMBER", "import itertools; NUMBER = itertools.count()"),
        ("RANDOM", "import random; RANDOM = random.Random(0)"),
        ("GENERATOR", "import torch; GENERATOR = torch.Generator()"),
        ("RNG", "import numpy as np; RNG = np.random.default_rng(0)"),
        ("DATABASE", "import sqlite3; DATABASE = sqlite3.connect(':memory:')"),
        ("ROWS", "ROWS = (n for n in range(3))"),
        ("LARGE", "import numpy as np; LARGE = np.zeros(9_000_000)"),
        ("FRAME", "import pandas as pd; FRAME = pd.DataFrame({'a': [1]})"),
        ("NEXT", "import itertools; NEXT = itertools.count().__next__"),
        ("DRAW", "import random; DRAW = random.Random(0).random"),
        ("LOCAL", "import threading; LOCAL = threading.local()"),
        ("MASKED", "import numpy as np; MASKED = np.ma.array([1.0])"),
        ("VARIABLE", "import contextvars; VARIABLE = contextvars.ContextVar('v')"),
        ("LAZY", "import torch; LAZY = torch.nn.LazyLinear(3)"),
        ("DEEP", "DEEP = eval('[' * 90 + ']' * 90); [DEEP := [DEEP] for _ in range(3000)]"),
        ("MANY", "MANY = [[n] for n in range(300_000)]"),
        ("registry", "import functools\nregistry = functools.cache(dict)\nregistry()"),
    ],
)
def test_what_cannot_be_compared_does_not_stay(load: Load, tmp_path: Path, name: str, text: str) -> None:
    load(text)
    assert Imported((tmp_path,)).changed().startswith(f"module_of_user.{name} ")


def test_a_file_that_changed_is_imported_anew(load: Load, tmp_path: Path) -> None:
    load("X = 1")
    imported = Imported((tmp_path,))
    os.utime(tmp_path / "module_of_user.py", ns=(1, 1))
    assert imported.changed() == "module_of_user is no longer what was imported"


def test_nothing_stays_if_a_trial_imports_a_part(load: Load, tmp_path: Path) -> None:
    (tmp_path / "late_of_user.py").write_text("CALLS = []")
    module = load("def train():\n    import late_of_user")
    imported = Imported((tmp_path,))
    module.train()
    assert imported.changed() == "a trial imported late_of_user: import it at the top of its module"


def test_compiled_functions_stay_what_they_are(load: Load, tmp_path: Path) -> None:
    module = load(
        """
        import torch

        @torch.compile(backend="eager")
        def double(x):
            return 2 * x

        NET = torch.compile(torch.nn.Linear(2, 2), backend="eager")
        """
    )
    imported = Imported((tmp_path,))
    with module.torch.no_grad():
        module.double(module.torch.ones(2))
        module.NET(module.torch.ones(1, 2))
    assert not imported.changed()


def test_an_optimizer_of_the_users_stays_though_torch_wraps_its_step(load: Load, tmp_path: Path) -> None:
    module = load(
        """
        import torch

        class Steps(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {})

            @torch.no_grad()
            def step(self, closure=None, seen=[]):
                for p in self.param_groups[0]["params"]:
                    p.sub_(p.grad)
        """
    )
    imported = Imported((tmp_path,))
    weights = module.torch.ones(2, requires_grad=True)
    optimizer = module.Steps([weights])
    weights.sum().backward()
    optimizer.step()
    assert weights.tolist() == [0, 0]
    assert not imported.changed()
    module.Steps.step.__wrapped__.__wrapped__.__defaults__[1].append(1)
    assert "Steps" in imported.changed()
