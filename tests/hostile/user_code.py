"""The modules of a hostile or careless user, which generated experiments name; each text is a file of its own."""

from __future__ import annotations

DEEP = "SPACE = {}\ninner = SPACE\nfor _ in range(2000):\n    inner['a'] = {}\n    inner = inner['a']\n"
WIDE = "SPACE = {'a': 1}\nfor _ in range(50):\n    SPACE = {'a': SPACE, 'b': SPACE}\n"

MODULES = {
    "good.py": "def train(config): raise SystemExit('a trial ran')\n",
    "typed.py": """\
from __future__ import annotations
import dataclasses, pydantic
from typing import Literal
@dataclasses.dataclass
class Config:
    lr: float
    epochs: int = 3
    opt: Literal["sgd", "adam"] = "sgd"
class Model(pydantic.BaseModel):
    lr: float
    epochs: int = 3
    opt: Literal["sgd", "adam"] = "sgd"
    names: list[str] = []
def dataclass(config: Config): ...
def model(config: Model): ...
""",
    "raises.py": "raise ValueError('at import')\n",
    "exits.py": "raise SystemExit(0)\n",
    "base.py": "class E(BaseException): pass\nraise E('x')\n",
    "interrupts.py": "class E(GeneratorExit): pass\nraise E()\n",
    "group.py": "raise BaseExceptionGroup('all', [SystemExit(3)])\n",
    "deep_import.py": "def f(): return f()\nf()\n",
    "badtext.py": "class E(Exception):\n    def __str__(self): raise ValueError('no text')\nraise E()\n",
    "long_error.py": "raise ValueError('x' * 10**7)\n",
    "escapes.py": "raise ValueError('\\x1b[31m\\ud800\\nfoo')\n",
    "lazy.py": "def __getattr__(name): raise ValueError('lazy ' + name)\n",
    "lazy_exit.py": "def __getattr__(name): raise SystemExit(7)\n",
    "lazy_any.py": "def __getattr__(name): return 5\n",
    "odd.py": """\
class Raises:
    def __getattr__(self, name): raise ValueError(name)
    def __call__(self, config): ...
class Everything:
    def __getattribute__(self, name): raise OSError(name)
class Everywhere:
    def __getattribute__(self, name): raise OSError(name)
    def __call__(self, config): ...
class Signed:
    __signature__ = 5
    def __call__(self, config): ...
class Class:
    @property
    def __class__(self): raise ValueError('no class')
class Exits:
    @property
    def __signature__(self): raise SystemExit(0)
    def __call__(self, config): ...
raises, everything, everywhere = Raises(), Everything(), Everywhere()
signed, classless, exits = Signed(), Class(), Exits()
def signature(config): ...
signature.__signature__ = 5
def wraps(config): ...
wraps.__wrapped__ = wraps
def unhinted(config): ...
unhinted.__annotations__ = 5
def syntax(config: "1+"): ...
def attribute(config: "os.nope"): ...
def division(config: "1/0"): ...
def brackets(config: "list[1][2][3]"): ...
def leaves(config: "exit(3)"): ...
def recursive(config: "(lambda f: f(f))(lambda f: f(f))"): ...
def anything(*args, **kwargs): ...
def keyword(*, config): ...
def nothing(): ...
def many(a, b, c): ...
async def coroutine(config): ...
def generator(config): yield
partial = __import__('functools').partial(many, b=1, c=2)
class Config:
    def __init__(self, config): raise SystemExit(0)
""",
    "hints.py": """\
import dataclasses, pydantic
@dataclasses.dataclass
class Unknown:
    lr: "Nowhere"
@dataclasses.dataclass
class Syntax:
    lr: "1+"
@dataclasses.dataclass
class Exits:
    lr: float
    def __post_init__(self): raise SystemExit(0)
@dataclasses.dataclass
class Raises:
    lr: float
    def __post_init__(self): raise ValueError('x' * 10**7)
@dataclasses.dataclass
class Sometimes:
    lr: float
    def __post_init__(self):
        if self.lr > 0.05: raise ValueError('too large')
class Model(pydantic.BaseModel):
    lr: "Nowhere"
class Validated(pydantic.BaseModel):
    lr: float
    @pydantic.model_validator(mode='after')
    def check(self): raise SystemExit(0)
@dataclasses.dataclass
class Loop:
    lr: float = 0.1
    inner: "Loop | None" = None
@dataclasses.dataclass
class Odd:
    lr: object = object()
    other: 5 = 5
def unknown(config: Unknown): ...
def syntax(config: Syntax): ...
def exits(config: Exits): ...
def raises(config: Raises): ...
def sometimes(config: Sometimes): ...
def model(config: Model): ...
def validated(config: Validated): ...
def loop(config: Loop): ...
def odd(config: Odd): ...
""",
    **{
        f"bytes_{i}.py": f"def train(config): ...\ndef checkpoint_bytes(config): {body}\n"
        for i, body in enumerate(
            [
                "return 10**400",
                "return float('inf')",
                "return float('nan')",
                "return -5",
                "return 'x'",
                "return None",
                "raise SystemExit(0)",
                "raise MemoryError()",
                "return checkpoint_bytes(config)",
            ]
        )
    },
    "spaces.py": f"""\
import collections
from ray import tune
import numpy
RECURSIVE = {{'a': 1}}
RECURSIVE['a'] = RECURSIVE
LOOP = [tune.uniform(0, 1)]
LOOP.append(LOOP)
RECURSIVE_LIST = {{'a': LOOP}}
RECURSIVE_CONSTANT = {{'a': tune.uniform(0, 1), 'b': []}}
RECURSIVE_CONSTANT['b'].append(RECURSIVE_CONSTANT['b'])
RECURSIVE_CHOICE = {{'a': tune.choice([RECURSIVE_CONSTANT['b']])}}
EXITS = {{'a': tune.sample_from(lambda spec: (_ for _ in ()).throw(SystemExit(7)))}}
RAISES = {{'a': tune.sample_from(lambda spec: 1 / 0)}}
BASE = {{'a': tune.sample_from(lambda spec: (_ for _ in ()).throw(GeneratorExit()))}}
TEXT = {{'a': tune.uniform('x', 'y')}}
NONE = {{'a': tune.randint(None, 3)}}
NAN = {{'a': tune.uniform(float('nan'), 1)}}
INF = {{'a': tune.loguniform(1, float('inf'))}}
HUGE = {{'a': tune.randint(0, 10**30), 'b': 10**5000}}
HUGE_CHOICE = {{'a': tune.choice([10**5000, 1])}}
EMPTY_CHOICE = {{'a': tune.choice([])}}
NO_LIST = {{'a': {{'grid_search': 5}}}}
NO_NAMES = {{5: tune.uniform(0, 1), None: 2}}
SURROGATE = {{'\\ud800': tune.uniform(0, 1), 'b': '\\ud800'}}
ESCAPES = {{'\\x1b[31m': tune.uniform(0, 1), 'b': '\\x1b]0;title\\x07'}}
ARRAY = {{'a': numpy.zeros(3), 'b': tune.choice([numpy.zeros(3), numpy.ones(2)])}}
OBJECTS = {{'a': tune.choice([object(), object()]), 'b': lambda: 1}}
class Unshown:
    def __repr__(self): raise ValueError('no repr')
UNSHOWN = {{'a': tune.choice([Unshown(), 1]), 'b': Unshown()}}
class Mapping(dict):
    def items(self): raise OSError('items')
    def keys(self): raise OSError('keys')
    def __iter__(self): raise OSError('iter')
ODD = Mapping(a=1)
ENDLESS = collections.defaultdict(lambda: tune.uniform(0, 1))
LIST = [1]
NUMBER = 5
{DEEP.replace("SPACE", "DEEP")}
{WIDE.replace("SPACE", "WIDE")}
""",
    "searchers.py": """\
from ray.tune.search import Searcher
from ray.tune.schedulers import FIFOScheduler
class Exits(Searcher):
    def __init__(self, **kwargs): raise SystemExit(0)
class Signed(Searcher):
    __signature__ = 5
class Refuses(Searcher):
    def set_search_properties(self, *args, **kwargs): raise KeyError('x' * 10**6)
class Metaclass(type(Searcher)):
    def __call__(cls, *args, **kwargs): raise SystemExit(3)
class Made(Searcher, metaclass=Metaclass): ...
class ExitsScheduler(FIFOScheduler):
    def __init__(self, **kwargs): raise SystemExit(0)
class SignedScheduler(FIFOScheduler):
    __signature__ = 5
""",
    "words.yaml": "lr: {uniform: [0, 1]}\n",
    "huge.yaml": "# " + "x" * 78 + "\n",
    "latin.yaml": "caf\u00e9: 1\n",
}
