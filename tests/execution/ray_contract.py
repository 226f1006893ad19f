"""The members of Ray that tuner overrides, replaces or calls though Ray promises nothing of them, found in our source.

Everything that Ray does not mark ``@PublicAPI`` may change with any release. `members` reads tuner's own source: the
imports, what is overridden of Ray's classes, and the attributes of objects whose class can be told. `fingerprints`
says what each member is in the Ray that is installed: its signature, and the hash of its source.

    python -m tests.execution.ray_contract

That writes tests/execution/ray_members/VERSION.json, once what changed has been read.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import json
import re
import typing
from collections import defaultdict
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any

ROOT = Path(__file__).parents[2]
RECORDS = Path(__file__).with_name("ray_members")

Users = dict[str, set[str]]
"""By member of Ray: our functions that rely on it."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

ATTRIBUTES = {
    "ray.tune.execution.tune_controller:TuneController._actor_cache": "ray.tune.utils.object_cache:_ObjectCache",
    "ray.tune.execution.tune_controller:TuneController._actor_manager": "ray.air.execution._internal:RayActorManager",
    "ray.tune.execution.tune_controller:TuneController._search_alg": "ray.tune.search:SearchGenerator",
    "ray.tune.experiment:Trial.temporary_state": "ray.tune.experiment.trial:_TemporaryTrialState",
    "ray.tune.experiment:Trial.run_metadata": "ray.tune.experiment.trial:_TrainingRunMetadata",
    "ray.tune.experiment:Trial.storage": "ray.train._internal.storage:StorageContext",
    "ray.tune.trainable:FunctionTrainable._storage": "ray.train._internal.storage:StorageContext",
    "ray.tune.experiment.trial:_TemporaryTrialState.ray_actor": "ray.actor:ActorHandle",
    "ray.tune.experiment.trial:_TrainingRunMetadata.checkpoint_manager": (
        "ray.train._internal.checkpoint_manager:_CheckpointManager"
    ),
    "ray._private.worker:_global_node": "ray._private.node:Node",
}
"""The class of attributes that Ray does not annotate."""

RETURNS = {
    "ray.tune.experiment.config_parser:_create_trial_from_spec": "ray.tune.experiment:Trial",
    "tuner.execution.auth:core": "ray._raylet",
}
"""The class, or the module, of what functions return that are not annotated with it."""

UNTYPED = (
    "ray.actor:ActorHandle",
    "ray.tune.execution.tune_controller:TuneController",
    "ray.tune.experiment:Trial",
    "ray.train._internal.session:_TrainSession",
)
"""Classes in which a name with an underscore is looked for where the class of an object cannot be told."""

OTHERS = {"_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_trial_id"} | {
    "_C",
    "_cuda_clearCublasWorkspaces",
}
"""Names of torch and Optuna."""

READ = {
    "ray.tune.tune:run": "tuner.execution.controller.replaces_rays",
    "ray.tune.execution.tune_controller:TuneController.step": "tuner.execution.controller.Controller",
    "ray.tune.trainable:FunctionTrainable.step": "tuner.execution.trial_process.TrialProcess.next_reports",
    "ray.tune.trainable:Trainable.restore": "tuner.trainable.class_trial",
    "ray.tune.trainable:Trainable.save": "tuner.trainable.class_trial",
    "ray.tune.registry:_ParameterRegistry.get": "tuner.trainable.bound_parameters.BoundValues",
    "ray.tune.registry:_ParameterRegistry.flush": "tuner.trainable.bound_parameters.parameters_kept",
    "ray.tune.trainable.util:with_parameters": "tuner.trainable.wrapped",
    "ray.tune.trainable.util:with_resources": "tuner.trainable.requested_resources",
    "ray.train._internal.session:_TrainSession.get_next": "tuner.execution.trial_process.TrialProcess._wait_for_report",
    "ray.tune.execution.tune_controller:TuneController._schedule_trial_task": "tuner.execution.controller.Controller",
}
"""What is not named in our source, and how it works is relied upon all the same."""


def resolved(path: str) -> Any:
    """``module:name.name`` as an object."""
    module, _, names = path.partition(":")
    return functools.reduce(getattr, filter(None, names.split(".")), importlib.import_module(module))


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def source_of(module: str) -> Path | None:
    """The file of a module; None for a compiled one."""
    file = getattr(importlib.import_module(module), "__file__", None) or ""
    return Path(file) if file.endswith(".py") else None


@functools.cache
def definition(module: str, name: str) -> Definition | None:
    """Where a module defines a class, a function or a method."""
    file = source_of(module)
    node: Any = parsed(file) if file else None
    for part in name.split("."):
        body = node.body if node else []
        node = next((one for one in reversed(body) if isinstance(one, Definition) and one.name == part), None)
    found: Definition | None = node
    return found


def is_rays(thing: Any) -> bool:
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    return name.partition(".")[0] == "ray"


def is_promised(thing: Any) -> bool:
    """Whether Ray marks it as public."""
    kind = vars(thing).get("_annotated_type") if hasattr(thing, "__dict__") else None
    return kind is not None and kind.name == "PUBLIC_API"


def owner(cls: type, name: str) -> type | None:
    """The class of Ray's that defines ``name`` for ``cls``, as a member or as an attribute of its objects."""
    theirs = [base for base in cls.__mro__ if is_rays(base)]
    return next((base for base in theirs if name in vars(base) or name in attributes(base)), None)


@functools.cache
def attributes(cls: type) -> frozenset[str]:
    """What objects of ``cls`` get in its methods, or by annotation."""
    body = definition(cls.__module__, cls.__qualname__)
    if body is None and "__init__" in vars(cls):  # it says that it is of another module
        body = definition(vars(cls)["__init__"].__module__, cls.__qualname__)
    stored = {
        node.attr
        for node in (ast.walk(body) if body else ())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value)
    }
    return frozenset(stored | set(vars(cls).get("__annotations__", {})))


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


class Reader:
    """Reads one module of tuner."""

    def __init__(self, file: Path, ours: set[str], found: Users) -> None:
        self.module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        self.tree = parsed(file)
        self.ours = ours
        self.found = found
        self.unknown: Users = defaultdict(set)
        self.names: dict[str, Any] = dict(vars(self.module))

    def read(self) -> None:
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imports:
            self.import_names(node)
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                cls = vars(self.module)[node.name]
                for name in {*vars(cls)} - {"_abc_impl"}:
                    self.overrides(cls, name)
        self.visit(self.tree, (), {}, None)

    # --- where it is ---

    def import_names(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if isinstance(node, ast.Import):
                if alias.name.partition(".")[0] == "ray":
                    importlib.import_module(alias.name)
                    self.names[alias.asname or "ray"] = importlib.import_module((alias.asname and alias.name) or "ray")
            elif (node.module or "").partition(".")[0] in ("ray", "tuner"):
                home = importlib.import_module(str(node.module))
                thing = getattr(home, alias.name, None)
                if thing is None:
                    thing = importlib.import_module(f"{node.module}.{alias.name}")
                self.names[name] = thing
                if home.__name__.startswith("ray"):
                    self.rely(home, alias.name, f"{self.module.__name__} (import)")

    # --- what is relied upon ---

    def rely(self, home: Any, name: str, user: str) -> None:
        """Notes the member ``name`` of a module or class of Ray's, unless Ray promises it."""
        if isinstance(home, ModuleType):
            thing = getattr(home, name, None)
            if isinstance(thing, ModuleType) or name in ("__file__", "__version__"):
                return
            if isinstance(thing, type | FunctionType) and is_rays(thing):
                if not is_promised(thing):
                    self.found[f"{thing.__module__}:{thing.__qualname__}"].add(user)
                return
            self.found[f"{home.__name__}:{name}"].add(user)
            return
        defines = owner(home, name)
        if defines is None:
            if any(name in vars(base) for base in home.__mro__):
                return  # of Python's own: the value of an enumeration
            self.unknown[name].add(f"{user}, of {home.__module__}.{home.__qualname__}")
        elif name.startswith("_") or not is_promised(defines):
            self.found[f"{defines.__module__}:{defines.__qualname__}.{name}"].add(user)

    def overrides(self, cls: type, name: str) -> None:
        theirs = next((base for base in cls.__mro__[1:] if is_rays(base) and name in vars(base)), None)
        if theirs and (not name.startswith("__") or name in ("__init__", "__del__")):
            self.found[f"{theirs.__module__}:{theirs.__qualname__}.{name}"].add(
                f"{cls.__module__}.{cls.__qualname__}.{name}"
            )

    # --- the walk ---

    def visit(self, node: ast.AST, path: tuple[str, ...], types: dict[str, Any], cls: type | None) -> None:
        if isinstance(node, ast.ClassDef):
            inner = vars(self.module).get(node.name) if not path else None
            for child in node.body:
                self.visit(child, (*path, node.name), {}, inner)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            types = dict(types)
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            types |= {argument.arg: self.annotated(argument.annotation) for argument in arguments}
            if cls and arguments and arguments[0].arg == "self":
                types["self"] = cls
            path = (*path, node.name) if not isinstance(node, ast.Lambda) else path
        elif isinstance(node, ast.Assign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self.bind(target, node.value, types, cls)
        elif isinstance(node, ast.Call):
            self.patched(node, path, types, cls)
        elif isinstance(node, ast.Attribute):
            self.attribute(node, path, types, cls)
        for child in ast.iter_child_nodes(node):
            self.visit(child, path, types, cls)

    def bind(self, target: ast.expr, value: ast.expr, types: dict[str, Any], cls: type | None) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=False):
                self.bind(one, other, types, cls)
        elif isinstance(target, ast.Name):
            types[target.id] = self.type_of(value, types)

    def attribute(self, node: ast.Attribute, path: tuple[str, ...], types: dict[str, Any], cls: type | None) -> None:
        user = ".".join((self.module.__name__, *path))
        home, name = self.type_of(node.value, types), node.attr
        dunder = name.startswith("__") and name.endswith("__")
        if isinstance(home, ModuleType) and is_rays(home):
            self.rely(home, name, user)
        elif isinstance(home, type) and is_rays(home):
            if not dunder or isinstance(node.ctx, ast.Store):
                self.rely(home, name, user)
        elif isinstance(home, type):
            if not self.is_ours(home, name) and owner(home, name):
                self.rely(home, name, user)
        elif home is None and name.startswith("_") and not dunder and name not in self.ours | OTHERS:
            classes = [resolved(path) for path in UNTYPED]
            knowing = [known for known in classes if owner(known, name)]
            for known in knowing:
                self.rely(known, name, user)
            if not knowing:
                self.unknown[name].add(user)

    def is_ours(self, cls: type, name: str) -> bool:
        """Whether a class of ours is the first to define ``name``."""
        ours = [base for base in cls.__mro__ if base.__module__.startswith("tuner")]
        return any(name in vars(base) or name in attributes(base) for base in ours)

    def patched(self, node: ast.Call, path: tuple[str, ...], types: dict[str, Any], cls: type | None) -> None:
        """``mock.patch.multiple(object, name=...)`` and ``mock.patch.object(object, "name", ...)``."""
        if not isinstance(node.func, ast.Attribute) or not ast.unparse(node.func).startswith("mock.patch."):
            return
        home = self.type_of(node.args[0], types)
        names = [word.arg for word in node.keywords if word.arg and node.func.attr == "multiple"]
        names += [str(item.value) for item in node.args[1:2] if isinstance(item, ast.Constant)]
        for name in names if is_rays(home) else ():
            self.rely(home, name, ".".join((self.module.__name__, *path)))

    # --- of which class is it ---

    def type_of(self, node: ast.expr, types: dict[str, Any]) -> Any:
        """The module or class that ``node`` names, or the class of the object; None where it cannot be told."""
        if isinstance(node, ast.Name):
            found = types[node.id] if node.id in types else self.names.get(node.id)
            return found if isinstance(found, ModuleType | type) else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "instance":
                return self.type_of(node.func.value, types)
            called = self.called(node.func, types)
            return called if isinstance(called, type) else returned(called)
        if isinstance(node, ast.Attribute):
            home = self.type_of(node.value, types)
            return None if home is None else self.member(home, node.attr)
        return None

    def called(self, node: ast.expr, types: dict[str, Any]) -> Any:
        if isinstance(node, ast.Name) and node.id not in types:
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute) and (home := self.type_of(node.value, types)) is not None:
            return getattr(home, node.attr, None)
        return self.type_of(node, types)

    def member(self, home: Any, name: str) -> Any:
        if isinstance(home, ModuleType):
            known = ATTRIBUTES.get(f"{home.__name__}:{name}")
            found = resolved(known) if known else getattr(home, name, None)
            return found if isinstance(found, ModuleType | type) else None
        if (found := made(home, name)) is not None:
            return found
        for path, known in ATTRIBUTES.items():
            of, _, attribute = path.rpartition(".")
            if ":" in of and attribute == name and issubclass(home, resolved(of)):
                return resolved(known)
        return declared(home, name)

    def annotated(self, node: ast.expr | None) -> Any:
        """The class that an annotation names."""
        if isinstance(node, ast.BinOp):  # X | None
            return self.annotated(node.left)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        found = self.type_of(node, {}) if isinstance(node, ast.Name | ast.Attribute) else None
        return found if isinstance(found, type) else None


@functools.cache
def declared(cls: type, name: str) -> Any:
    """The class of an attribute that a class of ours declares, or takes in its constructor."""
    for base in cls.__mro__:
        body = definition(base.__module__, base.__qualname__) if base.__module__.startswith("tuner") else None
        for node in ast.walk(body) if body else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return named(node.annotation, base.__module__)
            if not isinstance(node, ast.FunctionDef) or node.name != "__init__":
                continue
            given = {argument.arg: argument.annotation for argument in node.args.args}
            for inner in ast.walk(node):
                targets = inner.targets if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Name) else []
                if any(isinstance(one, ast.Attribute) and one.attr == name for one in targets):
                    return named(given.get(inner.value.id), base.__module__)  # type: ignore[attr-defined]
    return None


@functools.cache
def made(cls: type, name: str) -> Any:
    """The class of ours of which a class of ours makes an attribute."""
    for base in cls.__mro__:
        body = definition(base.__module__, base.__qualname__) if base.__module__.startswith("tuner") else None
        for node in ast.walk(body) if body else ():
            called = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
            if called and any(isinstance(one, ast.Attribute) and one.attr == name for one in node.targets):  # type: ignore[attr-defined]
                return named(called.func, base.__module__)
    return None


def named(node: ast.expr | None, module: str) -> Any:
    """The class that an annotation in a module of ours names, which may be imported for annotations only."""
    if not isinstance(node, ast.Name):
        return None
    found = getattr(importlib.import_module(module), node.id, None)
    file = source_of(module) if found is None else None
    for line in ast.walk(parsed(file)) if file else ():
        if isinstance(line, ast.ImportFrom) and node.id in [alias.asname or alias.name for alias in line.names]:
            found = getattr(importlib.import_module(str(line.module)), node.id, None)
    return found if isinstance(found, type) else None


def returned(function: Any) -> Any:
    """The class of what a function returns."""
    known = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if known in RETURNS:
        return resolved(RETURNS[known])
    try:
        found = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None
    if typing.get_origin(found) in (typing.Union, UnionType):
        found = next(one for one in typing.get_args(found) if one is not type(None))
    return found if isinstance(found, type) else None


def members() -> tuple[Users, Users]:
    """What tuner relies on, and names with an underscore of which it cannot be told whose they are."""
    files = sorted((ROOT / "tuner").rglob("*.py"))
    ours = set().union(*(defined(parsed(file)) for file in files))
    found: Users = defaultdict(set)
    unknown: Users = defaultdict(set)
    for file in files:
        if re.search(r"^ *(from|import) ray\b|\bexecution\b", file.read_text(), re.MULTILINE):
            reader = Reader(file, ours, found)
            reader.read()
            for name, users in reader.unknown.items():
                unknown[name] |= users
    for path, user in READ.items():
        thing = resolved(path)
        found[f"{thing.__module__}:{thing.__qualname__}"].add(user)
    return found, unknown


def defined(tree: ast.AST) -> set[str]:
    """The names that a module of ours defines, of whatever."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _signature(thing: Any) -> inspect.Signature:
    """Without the parameter that Ray adds to the methods of a class as soon as the class becomes an actor's."""
    found = inspect.signature(thing)
    return found.replace(parameters=[p for p in found.parameters.values() if p.name != "_ray_trace_ctx"])


def fingerprint(path: str) -> str:
    """Signature and hash of the source of a member; of a value the value, of an attribute that it is there."""
    module, _, name = path.partition(":")
    outer, _, last = name.rpartition(".")
    try:
        home = resolved(f"{module}:{outer}")
    except (AttributeError, ImportError):
        return "gone"
    try:
        thing = inspect.getattr_static(home, last)
    except AttributeError:
        return "attribute" if isinstance(home, type) and owner(home, last) else "gone"
    if isinstance(thing, str | int | float | bool):
        return f"value {thing!r}"
    node = definition(module, f"{name}.__init__" if isinstance(thing, type) else name)
    if node is not None:
        return described(node, source_of(module))
    try:
        return re.sub(r" at 0x\w+", "", str(_signature(thing)))  # made by a decorator, or compiled
    except (TypeError, ValueError):
        return type(thing).__name__


def described(node: Definition, file: Path | None) -> str:
    """Signature, and hash of the source with its decorators."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = file.read_text().splitlines()[first - 1 : node.end_lineno] if file else []
    given = "class" if isinstance(node, ast.ClassDef) else f"({ast.unparse(node.args)})"
    return f"{given} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def fingerprints(found: Users) -> dict[str, str]:
    return {path: fingerprint(path) for path in sorted(found)}


def recorded(version: str) -> dict[str, str]:
    """What was read of a version of Ray; of one that nobody has read: of the latest before it."""
    known = sorted(RECORDS.glob("*.json"), key=lambda file: [int(part) for part in file.stem.split(".")])
    exact = [file for file in known if file.stem == version]
    found: dict[str, str] = json.loads((exact or known)[-1].read_text())
    return found


def main() -> None:
    import ray

    found, unknown = members()
    if unknown:
        raise SystemExit(f"of which class are {dict(unknown)}? see ATTRIBUTES and UNTYPED")
    RECORDS.mkdir(exist_ok=True)
    file = RECORDS / f"{ray.__version__}.json"
    file.write_text(json.dumps(fingerprints(found), indent=1) + "\n")
    print(f"{file}: {len(found)} members")


if __name__ == "__main__":
    main()
