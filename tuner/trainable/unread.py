"""Parameters of the search space that the trainable never reads, found in its source before the search starts.

The source is followed from the trainable's argument through the user's own functions and classes, for as long as it is
certain what is read. If it is not (the configuration is iterated over, unpacked, or handed to a library), nothing is
reported: there are no false alarms. A configuration that recorded its reads would find more, but it would no longer be
a plain dict: `yaml.safe_dump`, OmegaConf and JAX refuse a subclass or treat it in another way.
"""

from __future__ import annotations

import abc
import ast
import dataclasses
import inspect
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tuner.trainable.source import OwnCode, Uncertain, is_assigned, is_plain, name_of, parents_in

_READERS = {"get", "pop", "setdefault"}
_HARMLESS = {"print", "len", "isinstance", "type", "id"}
"""Built-in functions that may get the configuration as a whole: nothing of it reaches a model."""
_HIDDEN = {"locals", "globals", "eval", "exec", "_getframe", "currentframe", "save_hyperparameters"}
"""Functions that can read a variable without its name."""


@dataclass(frozen=True)
class _Holder:
    """A variable that holds the configuration, in the function ``body``."""

    body: ast.FunctionDef
    variable: str
    globals: Mapping[str, Any]
    fields: frozenset[str] | None
    """Of a configuration that is an object with attributes; None: a dict."""
    owner: type | None = None
    """The class of which ``body`` is a method."""

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node of the function, in order, with the node that holds it."""
        return parents_in(self.body)


@dataclass
class _Reads:
    """What is read of the configuration, so far."""

    code: OwnCode
    wanted: frozenset[str]
    """Names of parameters, of groups without what is in them."""
    names: set[str] = field(default_factory=set)
    left: list[_Holder] = field(default_factory=list)
    seen: set[tuple[int, str, bool]] = field(default_factory=set)


def never_read(
    train: Any, others: Iterable[Any], config_type: type | None, names: Iterable[str], roots: tuple[Path, ...]
) -> list[str]:
    """Those of the parameters ``names`` (dotted) that ``train`` certainly never reads; empty if nothing is certain.

    ``others``: further functions of the user that get a configuration. ``config_type``: of its argument, a dataclass or
    model; None for a dict.
    """
    known = {name: name.partition(".")[0] for name in names}
    reads = _Reads(OwnCode(roots), frozenset(known.values()))
    try:
        fields = None if config_type is None else _read_class(reads, config_type)
        for function in (train, *others):
            _hand_to(reads, fields, function, 0)
        while reads.left:
            _follow(reads, reads.left.pop())
    except Exception:  # noqa: BLE001 - besides Uncertain: the user's objects may raise anything when they are looked at
        return []
    return [name for name, first in known.items() if first not in reads.names]


def never_given(train: Any, config_type: type | None, names: Iterable[str], roots: tuple[Path, ...]) -> list[str]:
    """The keys that ``train`` certainly reads of its configuration, a dict, and that are none of ``names`` (dotted).

    Certain is a read in ``train`` itself outside of any branch, if the function does nothing else with the dict.
    """
    if config_type is not None:
        return []
    reads, given = _Reads(OwnCode(roots), frozenset()), {name.partition(".")[0] for name in names}
    try:
        _hand_to(reads, None, train, 0)
    except Exception:  # noqa: BLE001 - besides Uncertain: the user's objects may raise anything when they are looked at
        return []
    (holder,) = reads.left
    needed: list[str] = []
    for node in holder.parents:
        if not isinstance(node, ast.Name) or node.id != holder.variable:
            continue
        match holder.parents[node]:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()) if value is node:
                if key not in given and key not in needed and not _is_in_branch(holder, node):
                    needed.append(key)
            case ast.Attribute(attr="get"):
                pass
            case _:
                return []
    return needed


def _is_in_branch(holder: _Holder, node: ast.AST) -> bool:
    """Whether ``node`` may be skipped, or its KeyError caught."""
    while node is not holder.body:
        node = holder.parents[node]
        if isinstance(node, _BRANCHES):
            return True
    return False


_BRANCHES = (
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.TryStar, ast.With, ast.While),
    *(ast.Lambda, ast.comprehension, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def _follow(reads: _Reads, holder: _Holder) -> None:
    """Notes what is read through ``holder``. Raises Uncertain."""
    key = (id(holder.body), holder.variable, holder.fields is None)
    if key in reads.seen:
        return
    reads.seen.add(key)
    for node in holder.parents:
        name = name_of(node)
        hidden = name in _HIDDEN and not _is_called_with_nothing(node, holder.parents[node])
        if hidden or (isinstance(node, ast.Global | ast.Nonlocal) and holder.variable in node.names):
            raise Uncertain
        if isinstance(node, ast.Name) and name == holder.variable and isinstance(node.ctx, ast.Load):
            _use(reads, holder, node)


def _is_called_with_nothing(node: ast.AST, outer: ast.AST) -> bool:
    """Whether ``node`` is a method in a call like ``model.eval()``."""
    called = isinstance(outer, ast.Call) and outer.func is node and not outer.args and not outer.keywords
    return isinstance(node, ast.Attribute) and called and node.attr == "eval"


def _use(reads: _Reads, holder: _Holder, node: ast.expr) -> None:
    """Notes what is read where the configuration is ``node``."""
    parents = holder.parents
    match parents[node]:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ctx) if value is node:
            if not _is_only_set(ctx, parents[parents[node]]):
                reads.names.add(key)
        case ast.Attribute() as access:
            _attribute(reads, holder, access)
        case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[right]):
            if right is not node:
                raise Uncertain
            reads.names.add(key)
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            _assign(reads, holder, target)
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[first, ast.Constant(value=str(key)), *_]) if (
            first is node and holder.fields is not None
        ):
            reads.names.add(key)
        case ast.Call(func=function, args=arguments) if node in arguments:
            if any(isinstance(argument, ast.Starred) for argument in arguments):
                raise Uncertain
            _call(reads, holder, function, arguments.index(node))
        case ast.keyword(arg=str(name)) as keyword:
            call_node = parents[keyword]
            if not isinstance(call_node, ast.Call):
                raise Uncertain
            _call(reads, holder, call_node.func, name)
        case ast.keyword(arg=None) if holder.fields is not None:
            pass  # of a branch for dicts: an object with fields cannot be unpacked
        case ast.keyword(arg=None) as keyword:
            _unpack(reads, holder, parents[keyword])
        case _:
            raise Uncertain


def _attribute(reads: _Reads, holder: _Holder, access: ast.Attribute) -> None:
    name, outer = access.attr, holder.parents[access]
    if holder.fields is not None:
        if name not in holder.fields:
            raise Uncertain  # a method of a library may read all
        if not _is_only_set(access.ctx, outer):
            reads.names.add(name)
        return
    if not hasattr(dict, name):  # the variable is assigned an object elsewhere
        reads.names.add(name)
        return
    match outer:
        case ast.Call(func=function, args=[ast.Constant(value=str(key)), *_]) if function is access:
            if name not in _READERS:
                raise Uncertain
            reads.names.add(key)
        case _:
            raise Uncertain


def _assign(reads: _Reads, holder: _Holder, target: ast.expr) -> None:
    """The configuration is assigned to a variable, or to an attribute of an object."""
    match target:
        case ast.Name(id=name):
            reads.left.append(replace(holder, variable=name))
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if holder.owner is not None:
            _stored(reads, holder, holder.owner, name)
        case _:
            raise Uncertain


def _stored(reads: _Reads, holder: _Holder, owner: type, attribute: str) -> None:
    """``self.attribute`` of ``owner`` holds the configuration, and so may each attribute of that name."""
    if attribute.startswith("__") or not all(is_plain(base) or _stores_plainly(reads, base) for base in owner.__mro__):
        raise Uncertain
    key = (0, attribute, holder.fields is None)
    if key in reads.seen:
        return
    reads.seen.add(key)
    for module in reads.code.modules():
        parents = parents_in(reads.code.tree(module))
        for node in parents:
            if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
                _use(reads, _around(node, parents, module, holder.fields), node)
            elif isinstance(node, ast.Constant) and node.value == attribute:
                raise Uncertain  # getattr(model, "settings")


def _stores_plainly(reads: _Reads, base: type) -> bool:
    return reads.code.holds(base) and not {"__setattr__", "__getattribute__"} & vars(base).keys()


def _around(
    node: ast.AST, parents: Mapping[ast.AST, ast.AST], module: types.ModuleType, fields: frozenset[str] | None
) -> _Holder:
    """The function or method in which ``node`` is. Raises Uncertain if it is in none."""
    body = parents[node]
    while not isinstance(body, ast.FunctionDef):
        if body not in parents:
            raise Uncertain
        body = parents[body]
    outside = parents.get(body)
    owner = vars(module).get(outside.name) if isinstance(outside, ast.ClassDef) else None
    return _Holder(body, "", vars(module), fields, owner if isinstance(owner, type) else None)


def _call(reads: _Reads, holder: _Holder, function: ast.expr, place: int | str) -> None:
    """The configuration is an argument of a call: the one at that ``place``, or of that name."""
    match function:
        case ast.Name(id=name):
            local = [n for n in ast.walk(holder.body) if isinstance(n, ast.FunctionDef) and n.name == name]
            if len(local) == 1 and not local[0].decorator_list and local[0] is not holder.body:
                variable = _argument(local[0], place, 0)
                reads.left.append(_Holder(local[0], variable, holder.globals, holder.fields))
                return
            if is_assigned(holder.body, name) or local:
                raise Uncertain
            if name in _HARMLESS and name not in holder.globals:
                return
            _hand_to(reads, holder.fields, holder.globals.get(name), place)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if holder.owner and not holder.owner.__subclasses__():
            method = inspect.getattr_static(holder.owner, name, None)
            _hand_to(reads, holder.fields, method, place, holder.owner)
        case ast.Attribute(value=ast.Name(id=module), attr=name) if not is_assigned(holder.body, module):
            found = holder.globals.get(module)
            if not isinstance(found, types.ModuleType):
                raise Uncertain
            _hand_to(reads, holder.fields, vars(found).get(name), place)
        case _:
            raise Uncertain


def _hand_to(
    reads: _Reads, fields: frozenset[str] | None, function: Any, place: int | str, owner: type | None = None
) -> None:
    """``function`` gets the configuration. Raises Uncertain unless it is a plain one of the user's."""
    skipped = 0
    if isinstance(function, type) and owner is None:
        owner, function = function, inspect.getattr_static(function, "__init__", None)
    if owner is not None:
        skipped = 1
        made_otherwise = inspect.getattr_static(owner, "__new__") is not object.__new__
        if made_otherwise or type(owner) not in (type, abc.ABCMeta) or not reads.code.holds(owner):
            raise Uncertain
    if not isinstance(function, types.FunctionType) or not reads.code.holds(function):
        raise Uncertain
    tree = reads.code.tree(function)
    body = tree.body[0] if isinstance(tree, ast.Module) and tree.body else None
    if not isinstance(body, ast.FunctionDef) or body.decorator_list:
        raise Uncertain
    variable = _argument(body, place, skipped)
    reads.left.append(_Holder(body, variable, function.__globals__, fields, owner))


def _argument(body: ast.FunctionDef, place: int | str, skipped: int) -> str:
    """The name of the argument of ``body`` that a call fills."""
    positional = [argument.arg for argument in (*body.args.posonlyargs, *body.args.args)]
    if isinstance(place, str):
        if place in (*positional, *(argument.arg for argument in body.args.kwonlyargs)):
            return place
    elif place + skipped < len(positional):
        return positional[place + skipped]
    raise Uncertain


def _unpack(reads: _Reads, holder: _Holder, call: ast.AST) -> None:
    """``Config(**config)``: the configuration continues as an object with fields. Raises Uncertain for other calls."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or is_assigned(holder.body, call.func.id):
        raise Uncertain
    made = holder.globals.get(call.func.id)
    if not isinstance(made, type) or not (dataclasses.is_dataclass(made) or issubclass(made, BaseModel)):
        raise Uncertain
    _use(reads, replace(holder, fields=_read_class(reads, made)), call)


def _read_class(reads: _Reads, config_type: type) -> frozenset[str]:
    """The fields of a configuration's class. Its methods count as readers of all that they name."""
    fields: set[str] = set()
    for base in config_type.__mro__:
        if is_plain(base) or base.__module__.startswith("pydantic."):
            continue
        fields |= inspect.get_annotations(base).keys()
        if not reads.code.holds(base):
            raise Uncertain
        for node in ast.walk(reads.code.tree(base)):
            if isinstance(node, ast.Attribute | ast.arg):
                reads.names.add(node.attr if isinstance(node, ast.Attribute) else node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                reads.names.add(node.value)
            elif isinstance(node, ast.Call) and any(name_of(argument) == "self" for argument in node.args):
                raise Uncertain
    reads.names |= reads.wanted - fields  # another name of a field, such as an alias
    return frozenset(fields)


def _is_only_set(ctx: ast.expr_context, statement: ast.AST) -> bool:
    """Whether a value is assigned to a parameter, and the value before it is not read."""
    return isinstance(ctx, ast.Store) and isinstance(statement, ast.Assign)
