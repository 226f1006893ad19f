"""Hostile and damaged experiment files, made from a number each; `python -m tests.hostile.experiments` runs many.

A file is a shipped experiment, or a small one, with one to three things wrong: a value of another type or size, text
that is damaged, a structure that is deep, wide or repeated, a name of code that misbehaves. `make` gives the same file
for the same number for ever; the named ones in `NAMED` are those of the first review.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.user_code import MODULES
from tuner.spec.document import read_yaml

ROOT = Path(__file__).parents[2]

POINT = {"opt": "adam", "lr": 0.01, "model": {"layers": 2, "width": 16}, "noise": 0.5}
MINIMAL = {
    "trainable": "good.py:train",
    "objective": {"metric": "loss", "mode": "min"},
    "search_space": {
        "opt": {"choice": ["sgd", "adam", "x y"]},
        "lr": {"loguniform": [1e-4, 0.1], "prior": 0.01, "confidence": "high"},
        "momentum": {"uniform": [0.5, 0.99], "when": {"opt": "sgd"}},
        "model": {
            "when": {"opt": ["sgd", "adam"]},
            "layers": {"randint": [1, 5]},
            "width": {"qlograndint": [8, 64, 8]},
        },
        "noise": {"randn": [0, 1]},
    },
    "constraints": ["lr < momentum", "model.layers * model.width <= 200 or opt == 'adam'"],
    "budget": {"trials": 10, "epochs": 100, "wall_clock": "20m", "target": 0.1, "patience": 3},
    "search": {"kind": "random", "seed": 1, "points_to_evaluate": [POINT]},
    "scheduler": {"kind": "asha", "max_t": 27, "grace_period": 1, "reduction_factor": 3},
    "resources": {"cpu": 1, "gpu": 0, "memory_gib": 0.5, "workers": 1, "custom": {}},
    "checkpoints": {"keep_per_trial": 1, "keep_trials": 5, "max_gib": 3, "every": 1},
    "failures": {"retries": 2, "stop_after": "50%", "hang_after": "10m"},
    "tracking": {"mlflow": {"uri": "sqlite:///mlflow.db"}},
    "params": {"epochs": 3, "nested": {"a": [1, {"b": None}]}},
}

SEARCHES = ["random", "grid", "optuna", "bohb", "hyperopt", "ray"]
SCHEDULERS = ["fifo", "asha", "hyperband", "bohb", "median", "pbt", "pb2", "ray"]
SAMPLERS = ["tpe", "gp", "cmaes", "qmc", "nsga2", "nope"]

NUMBERS = [
    0, 1, -1, 2, 3, 10**6, 10**8, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 10**399, 10**401, -(10**400),
    1e-320, 5e-324, 1e-300, 1e-9, 1e-4, 0.5, 0.1, 1.0000001, 1 + 2**-52, 1.5, 2.5, 1e9, 1e18, 1e300, 1.7e308,
    float("inf"), float("-inf"), float("nan"), -0.0,
]  # fmt: skip

TEXTS = [
    "", " ", "a", "auto", "null", "true", "1e-4", "50%", "100%", "0%", "20m", "9" * 400 + "s", "1h30m", "0s", "1e999",
    "\ud800", "a\ud800b", "\x00", "\x1b[31mred", "\x1b]0;title\x07", "\u202e", "\x85", "\ufeff", "\U0001f600", "\n",
    "x" * 100_000, "/etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem", "..", ".", "a/b", "a.b", "__a", "when",
    "~", "{}", "[]", "%", "{0}", "%s", "os:system", "builtins:dict", "no.yaml", "words.yaml", "latin.yaml", "huge.yaml",
    "e.yaml", "good.py", ".py:x", ":", "::", "a:b:c", "min", "max", "sgd", "opt",
]  # fmt: skip

TRAINABLES = [
    *(f"builtins:{name}" for name in ["dict", "type", "max", "exit", "print", "object", "None", "copyright", "eval"]),
    "os:system", "os:environ", "os:path", "subprocess:run", "math:hypot", "math:pi", "operator:itemgetter", "sys:exit",
    "functools:partial", "collections:OrderedDict", "ctypes:CDLL", "threading:Thread", "this:s", "__main__:x",
    "nope:x", ".:x", "..a:x", "a..b:x", "a\x00b:x", "\ud800:x", "é:x", "x" * 5000 + ":x", "sub/good.py:train",
    "/dev/null.py:x", "good.py:nope", "good:train", "good:__doc__", "good:__builtins__", "numpy:array", "torch:zeros",
    "json:JSONDecodeError", "typed.py:dataclass", "typed.py:model", "typed:Config", "typed:Model",
    *(f"{name}:train" for name in MODULES if name.endswith(".py") and name not in ("spaces.py", "odd.py", "hints.py")),
    *(f"odd.py:{name}" for name in [
        "raises", "everything", "everywhere", "signed", "classless", "exits", "signature", "wraps", "unhinted",
        "syntax",
        "attribute", "division", "brackets", "leaves", "recursive", "anything", "keyword", "nothing", "many",
        "coroutine",
        "generator", "partial", "Config", "Raises", "Signed", "nope", "__name__",
    ]),
    *(f"hints.py:{name}" for name in [
        "unknown", "syntax", "exits", "raises", "sometimes", "model", "validated", "loop", "odd",
    ]),
]  # fmt: skip

SPACES = [
    *(f"spaces:{name}" for name in [
        "RECURSIVE", "RECURSIVE_LIST", "RECURSIVE_CONSTANT", "RECURSIVE_CHOICE", "EXITS", "RAISES", "BASE", "TEXT",
        "NONE",
        "NAN", "INF", "HUGE", "HUGE_CHOICE", "EMPTY_CHOICE", "NO_LIST", "NO_NAMES", "SURROGATE", "ESCAPES", "ARRAY",
        "OBJECTS", "UNSHOWN", "ODD", "ENDLESS", "LIST", "NUMBER", "DEEP", "WIDE", "nope",
    ]),
    "os:environ", "raises.py:SPACE", "exits:SPACE", "base.py:SPACE", "lazy.py:SPACE", "lazy_exit.py:SPACE",
    "odd.py:classless", "odd.py:everything", "sys:modules", "builtins:__dict__", "/dev/zero", "words.yaml",
    "latin.yaml", "e.yaml", ".yaml", "x" * 5000, "\x00", "\ud800.yaml",
]  # fmt: skip

CLASSES = [
    "os:system", "subprocess:Popen", "builtins:dict", "searchers.py:Exits", "searchers.py:Signed",
    "searchers.py:Refuses",
    "searchers.py:Made", "searchers.py:ExitsScheduler", "searchers.py:SignedScheduler", "exits.py:X", "lazy.py:X",
    "ray.tune.search:Searcher", "ray.tune.schedulers:FIFOScheduler", "ray.tune.schedulers:PopulationBasedTraining",
    "ray.tune.search.hyperopt:HyperOptSearch", "ray.tune.schedulers:MedianStoppingRule", "odd.py:classless",
]  # fmt: skip

CONSTRAINTS = [
    "lr < 1e-9", "lr < 0.00010001", "lr < 1e-4 * 1.0000001", "9**9**9 > lr", "lr ** 99999999999 > 1", "lr > 'a'", "lr",
    "1",
    "not lr", "lr == lr", "lr / 0 > 1", "opt == 'sgd'", "opt > 1", "opt == '\\d'", "model > 1", "nope > 1", "lr.a > 1",
    "__import__('os').system('touch executed')", "lambda: lr", "[lr for lr in lr]", "f'{lr}' > 1", "lr if lr else lr",
    "(lr := 3) > 2", "lr > " + "9" * 900, "(" * 200 + "lr" + ")" * 200 + " > 1", " and ".join(["lr > 0"] * 95),
    "-" * 500 + "lr < 0", "not " * 200 + "lr > 1", "lr" + " + lr" * 200 + " > 1", "\x00", "\ud800 > 1", "lr >\n 1", "",
    "true", "null == lr", "lr % 0 == 1", "epochs > lr", "nested.a > 1", "epochs == 3", "0 < lr < 1 < 2 < 3", "lr != .5",
    "x" * 999, "x" * 1001, "lr @ lr > 1", "lr in lr", "lr is lr", "lr[0] > 1", "lr.__class__ == 1", "2 ** 2000 > lr",
    "0x" + "f" * 300 + " > lr", "1e999 > lr", "1j > lr", "b'a' == opt", "... == lr", "# lr", "lr > 1; lr",
    "yield lr > 1",
]  # fmt: skip


RARELY = [30, 6, 2, 1]
"""Weights of four sizes, each larger than the one before: a file of the last takes seconds."""


class Text(str):
    """Written into the file as it is."""


def shipped() -> dict[str, Any]:
    """The experiments of the repository, each with the search space that it names, by name."""
    found = {"minimal": copy.deepcopy(MINIMAL)}
    for file in sorted((ROOT / "experiments").glob("*.yaml")):
        value = read_yaml(file.read_text(), "").value
        found[f"{file.stem} by name"] = (
            value | {"search_space": str(ROOT / value["search_space"])}
            if isinstance(value["search_space"], str)
            else value
        )
        if isinstance(value["search_space"], str):
            space = read_yaml((ROOT / value["search_space"]).read_text(), "").value
            found[file.stem] = value | {"search_space": space}
    return found


BASES = shipped()


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every value in ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in items for p in paths(item, (*path, key)))]


def number(rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return rng.choice([-1, 1]) * rng.randrange(10 ** rng.choice([1, 3, 9, 18, 20, 400]))
    if rng.random() < 0.2:
        return rng.choice([-1, 1]) * 10.0 ** rng.uniform(-320, 308)
    return rng.choice(NUMBERS)


def text(rng: random.Random) -> str:
    if rng.random() < 0.3:
        size = rng.choice([1, 2, 5, 300])
        return "".join(
            chr(rng.choice([rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)])) for _ in range(size)
        )
    return rng.choice(TEXTS)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that YAML holds."""
    act = rng.randrange(12 if depth < 3 else 6)
    if act < 3:
        return number(rng)
    if act < 5:
        return text(rng)
    if act == 5:
        return rng.choice([None, True, False, {}, []])
    if act < 8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if act < 10:
        return {name(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return domain(rng) if act == 10 else structure(rng)


def name(rng: random.Random) -> str:
    known = [
        "lr",
        "opt",
        "model",
        "when",
        "prior",
        "confidence",
        "kind",
        "max_t",
        "trials",
        "choice",
        "uniform",
        "a",
        "b",
    ]
    return text(rng) if rng.random() < 0.2 else rng.choice(known)


def domain(rng: random.Random) -> Any:
    kinds = ["uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn", "randint", "qrandint", "lograndint"]
    kinds += ["qlograndint", "choice", "grid_search", "unifrom"]
    kind = rng.choice(kinds)
    plain = rng.random() < 0.5
    arguments: Any = [
        rng.choice([0, 1, 2, 8, 0.5, 100]) if plain else number(rng) for _ in range(rng.choice([1, 2, 2, 2, 3, 3]))
    ]
    if rng.random() < 0.1:
        arguments = value(rng, 3)
    written = {kind: sorted(arguments, key=repr) if plain and isinstance(arguments, list) else arguments}
    if rng.random() < 0.2:
        written["when"] = {name(rng): value(rng, 3)}
    if rng.random() < 0.2:
        written["prior"] = value(rng, 3)
    if rng.random() < 0.1:
        written["confidence"] = rng.choice(["low", "high", 3, "x", [], None])
    return written


def structure(rng: random.Random) -> Any:
    """Something deep or wide."""
    size = rng.choice([30, 70, 1000])
    act = rng.randrange(5)
    if act == 0:
        nested: Any = 1
        for _ in range(min(size, 300)):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested
    if act == 1:
        return {f"k{i}": number(rng) for i in range(size)}
    if act == 2:
        return [number(rng) for _ in range(size)]
    if act == 3:
        return {f"p{i}": domain(rng) for i in range(size)}
    return Text("[" * size + "]" * size)


def switches(rng: random.Random) -> dict[str, Any]:
    """A space whose conditions are hard to count."""
    count, size = rng.choice([3, 8, 12, 20, 30]), rng.choice([2, 4, 10])
    space: dict[str, Any] = {
        f"use_{i}": {rng.choice(["choice", "grid_search"]): list(range(size))} for i in range(count)
    }
    shape = rng.randrange(5)
    if shape == 0:
        space["last"] = {"choice": [1, 2], "when": {f"use_{i}": 0 for i in range(count)}}
    elif shape == 1:
        space |= {f"d{i}": {"choice": [1, 2], "when": {f"use_{i}": rng.randrange(size)}} for i in range(count)}
    elif shape == 2:
        space |= {
            f"d{i}": {"choice": [1, 2], "when": {f"use_{i}": 0, f"use_{(i + 1) % count}": 1}} for i in range(count)
        }
    elif shape == 3:
        pairs = list(itertools.combinations(range(count), 2))
        space |= {f"d{i}_{j}": {"choice": [1, 2], "when": {f"use_{i}": 0, f"use_{j}": [0, 1]}} for i, j in pairs}
    else:
        for i in range(1, count):
            space[f"use_{i}"]["when"] = {f"use_{rng.randrange(i)}": rng.randrange(size)}
    return space


def large(rng: random.Random) -> dict[str, Any]:
    """Changes of a whole experiment that make much of one thing."""
    n = rng.choices([100, 900, 3000, 20_000], RARELY)[0]
    makers: list[Callable[[], dict[str, Any]]] = [
        lambda: {"search_space": {f"p{i}": {"uniform": [0, 1]} for i in range(n)}},
        lambda: {"search_space": {f"p{i}": {"choice": [1, 2], "when": {f"q{i}": 1}} for i in range(n)}},
        lambda: {
            "search_space": {"a": {"choice": list(range(n))}, "b": {"choice": [1], "when": {"a": list(range(n))}}}
        },
        lambda: {
            "search_space": {
                "a": {"choice": list(range(n))},
                "b": {"choice": [1], "when": {"a": list(range(n, 2 * n))}},
            }
        },
        lambda: {
            "search_space": {
                "a": {"randint": [0, 9]},
                **{f"b{i}": {"choice": [1, 2], "when": {"a": i % 10}} for i in range(n)},
            }
        },
        lambda: {"constraints": [f"lr < {i} + 1" for i in range(n)]},
        lambda: {"constraints": [" + ".join(["lr"] * 95) + f" < {i}" for i in range(n)]},
        lambda: {"constraints": [f"nope{i} < 1" for i in range(n)]},
        lambda: {"params": {f"p{i}": i for i in range(n)}},
        lambda: {f"budgett{i}": i for i in range(n)},
        lambda: {"objective": [{"metric": f"m{i}", "mode": "min"} for i in range(n)]},
        lambda: {"objective": [{"metric": "m", "mode": "mn", f"weight{i}": "x"} for i in range(n)]},
        lambda: {"search": {"kind": "random", "points_to_evaluate": [{"lr": i} for i in range(n)]}},
        lambda: {"resources": {"custom": {f"r{i}": i for i in range(n)}}},
        lambda: {"search_space": switches(rng)},
        lambda: {"search_space": switches(rng), "search": {"kind": "grid"}, "budget": {}, "constraints": []},
        lambda: {"scheduler": {"kind": "pbt", "mutate": [f"p{i}" for i in range(n)]}},
        lambda: {"trainable": "typed.py:dataclass", "params": {f"p{i}": i for i in range(n)}},
    ]
    return rng.choice(makers)()


def algorithms(rng: random.Random) -> dict[str, Any]:
    """Another search, scheduler and budget."""
    search: dict[str, Any] = {"kind": rng.choice(SEARCHES)}
    if search["kind"] == "optuna":
        search["sampler"] = rng.choice(SAMPLERS)
    if search["kind"] == "ray":
        search |= {"class_path": rng.choice(CLASSES), "options": rng.choice([{}, {"a": 1}, {"seed": number(rng)}])}
    scheduler: dict[str, Any] = {"kind": rng.choice(SCHEDULERS)}
    if scheduler["kind"] == "ray":
        scheduler |= {"class_path": rng.choice(CLASSES), "options": rng.choice([{}, {"a": 1}])}
    for option in (
        "max_t",
        "grace_period",
        "reduction_factor",
        "brackets",
        "perturbation_interval",
        "min_samples_required",
    ):
        if rng.random() < 0.4:
            scheduler[option] = rng.choice([1, 2, 3, 9, 27, 100, "auto", number(rng), number(rng)])
    trials = rng.choice([1, 10, 10**6, 10**8, 10**18, number(rng)])
    return {"search": search, "scheduler": scheduler, "budget": {"trials": trials}}


def named_code(rng: random.Random) -> dict[str, Any]:
    act = rng.randrange(4)
    if act == 0:
        return {"search_space": rng.choice(SPACES)}
    if act == 1:
        key = rng.choice(["search", "scheduler"])
        return {key: {"kind": "ray", "class_path": rng.choice(CLASSES)}}
    return {"trainable": rng.choice(TRAINABLES)} | (
        {"search_space": {"lr": {"uniform": [0, 1]}}} if rng.random() < 0.5 else {}
    )


def rare(rng: random.Random) -> dict[str, Any]:
    bound = 10.0 ** -rng.choices(range(1, 9), [30, 30, 5, 1, 1, 1, 1, 1])[0]
    names = rng.choices([1, 2, 30, 300], RARELY)[0]
    space = {f"p{i}": {"uniform": [0, 1]} for i in range(names)}
    return {
        "search_space": space,
        "constraints": [f"p0 < {bound}", *rng.sample(CONSTRAINTS, rng.randrange(2))],
        "search": {"kind": rng.choice(SEARCHES[:-1])},
    }


def mutated(rng: random.Random, base: dict[str, Any]) -> dict[str, Any]:
    """``base`` with one value replaced, removed, renamed, added or repeated."""
    where = rng.choice([path for path in paths(base) if path])
    parent: Any = base
    for key in where[:-1]:
        parent = parent[key]
    act = rng.randrange(6)
    if act < 3 or isinstance(parent, list):
        parent[where[-1]] = value(rng)
    elif act == 3:
        del parent[where[-1]]
    elif act == 4:
        parent[name(rng)] = parent.pop(where[-1])
    else:
        parent[name(rng)] = value(rng)
    return base


def make(seed: int) -> bytes:
    """The file of that number."""
    rng = random.Random(seed)
    base = copy.deepcopy(rng.choice([MINIMAL, *BASES.values()]))
    if rng.random() < 0.7:
        base["trainable"] = "good.py:train"
    makers = [algorithms, algorithms, large, named_code, named_code, rare]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.5:
            base |= rng.choice(makers)(rng)
        elif rng.random() < 0.3:
            base["constraints"] = rng.sample(CONSTRAINTS, rng.randrange(1, 4))
        else:
            base = mutated(rng, base)
    written = dump(base)
    return damaged(rng, written) if rng.random() < 0.15 else written


def damaged(rng: random.Random, data: bytes) -> bytes:
    """``data`` with its bytes or lines changed."""
    lines = data.splitlines(keepends=True)
    i, at = rng.randrange(len(lines)), rng.randrange(len(data))
    match rng.randrange(9):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 2:
            return b"".join([*lines, lines[i]])
        case 3:
            return b"".join(lines[:i] + lines[i + 1 :])
        case 4:
            return (
                data[:at]
                + rng.choice(
                    [
                        b"\t",
                        b"\n",
                        b"[",
                        b"{",
                        b": ",
                        b"&a ",
                        b"*a",
                        b"!!python/name:os.system ",
                        b"%",
                        b"'",
                        b'"',
                        b"- ",
                    ]
                )
                + data[at:]
            )
        case 5:
            return data + "".join(f"k{n}: {n}\n" for n in range(rng.choices([1000, 60_000], [19, 1])[0])).encode()
        case 6:
            return data + b"# comment\n" * rng.choices([1000, 300_000, 3_000_000], [38, 1, 1])[0]
        case 7:
            nested = "a0: &a0 [x, x]\n" + "".join(
                f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 20)
            )
            return data + nested.encode()
    return data.decode(errors="replace").encode(rng.choice(["utf-16", "utf-8-sig", "utf-32"]), "replace")


def dump(value: Any) -> bytes:
    """``value`` as YAML in flow style, which holds whatever Python holds."""
    if isinstance(value, dict):
        lines = [f"{_flow(key)}: {_flow(item)}\n" for key, item in value.items()]
        return "".join(lines).encode("utf-8", "surrogatepass")
    return _flow(value).encode("utf-8", "surrogatepass")


def _flow(value: Any) -> str:
    if isinstance(value, Text):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"? {_flow(key)} : {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        escaped = (f"\\U{ord(c):08x}" if not 32 <= ord(c) < 127 or c in '"\\' else c for c in value)
        return '"' + "".join(escaped) + '"'
    if isinstance(value, float) and value - value != 0:
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )
