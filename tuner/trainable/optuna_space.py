"""The search space of an Optuna objective, read from its source: the objective does not run.

Running it until it has suggested everything would train: nothing in an objective marks the end of its suggestions.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.trainable.optuna_domains import domain_of
from tuner.trainable.source import function_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Match,
    ast.ExceptHandler,
    ast.BoolOp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
_HEADS = ("test", "iter", "subject")
"""Of a branch or a loop: what happens at least once."""

_REMEDY = "write search_space in the experiment"


def space_from_objective(objective: Callable[..., Any]) -> dict[str, Any]:
    """The search space of an Optuna objective, without running it.

    The objective must spell out its names and bounds, and call ``trial.suggest_*`` outside of branches and loops. A
    space that depends on values (define-by-run) cannot be read.

    Args:
        objective: A function of one ``optuna.Trial``.

    Returns:
        Domains by name, as in ``search_space`` of an experiment file. A dot in a name makes a group.

    Raises:
        InputError: The space cannot be read. The message names the line and the reason.

    Example:
        >>> def objective(trial):
        ...     lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        ...     return lr
        >>> space_from_objective(objective)
        {'lr': {'loguniform': [0.0001, 0.1]}}
    """
    space: dict[str, Any] = {}
    for name, distribution in suggestions(objective).items():
        *groups, last = name.split(".")
        inner = space
        for group in groups:
            inner = inner.setdefault(group, {})
        try:
            inner[last] = domain_of(distribution)
        except ValueError as error:
            raise InputError(f"{_called(objective)}: {name!r}: {error}; {_REMEDY}") from None
    if not space:
        raise InputError(f"{_called(objective)} suggests nothing; {_REMEDY}")
    return space


def suggestions(objective: Callable[..., Any]) -> dict[str, BaseDistribution]:
    """The suggestions of ``objective``, by name. Raises InputError if they are unknown until it runs."""
    function, called = function_of(objective), _called(objective)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        raise InputError(f"{called}: its source cannot be read; {_REMEDY}") from None
    body = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
    names = [] if body is None else [a.arg for a in [*body.args.posonlyargs, *body.args.args] if a.arg != "self"]
    if body is None or not names:
        raise InputError(f"{called} is not a function of one trial; {_REMEDY}")
    recorder = _recorder()
    for call, use, is_branch in _uses(body, names[0]):
        line = f"{called}, line {first + use.lineno - 1}"
        if call is None or not isinstance(call.func, ast.Attribute):
            raise InputError(f"{line}: the trial is handed on, and more may be suggested there; {_REMEDY}")
        method = call.func.attr
        if is_branch:
            raise InputError(f"{line}: trial.{method} in a branch, a loop or a function of its own; {_REMEDY}")
        try:
            arguments = [_value(argument, function.__globals__) for argument in call.args]
            options = {str(k.arg): _value(k.value, function.__globals__) for k in call.keywords}
            getattr(recorder, method)(*arguments, **options)
        except (_NotPlain, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{line}: trial.{method} cannot be read: {error}; {_REMEDY}") from None
    found: dict[str, BaseDistribution] = recorder.distributions
    return found


def _called(objective: Any) -> str:
    return str(getattr(objective, "__name__", None) or getattr(function_of(objective), "__qualname__", "the objective"))


def _uses(body: ast.FunctionDef, trial: str) -> Iterator[tuple[ast.Call | None, ast.Name, bool]]:
    """Each call of ``trial.suggest_*``, and each use of ``trial`` other than of its attributes (call None).

    With the node of the name, and whether it is in a branch.
    """

    def walk(
        node: ast.AST, owner: ast.AST, outer: ast.AST, is_branch: bool
    ) -> Iterator[tuple[ast.Call | None, ast.Name, bool]]:
        if isinstance(node, ast.Name) and node.id == trial:
            if not isinstance(owner, ast.Attribute):
                yield None, node, is_branch
            elif owner.attr.startswith("suggest_"):
                yield outer if isinstance(outer, ast.Call) and outer.func is owner else None, node, is_branch
        heads = [getattr(node, head, None) for head in _HEADS]
        for child in ast.iter_child_nodes(node):
            inside = isinstance(node, _BRANCHES) and not any(child is head for head in heads)
            yield from walk(child, node, owner, is_branch or inside)

    for statement in body.body:
        yield from walk(statement, body, body, False)


class _NotPlain(Exception):
    """A value that is not written out."""


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a literal, or of a name of the module that holds one. Raises _NotPlain."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, names) for item in node.elts]
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), bool | int | float | str | list | tuple):
        return names[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise _NotPlain(f"{ast.unparse(node)!r} is not written out") from None


def _recorder() -> Any:
    """A trial that notes what it is asked for."""
    import optuna

    class Recorder(optuna.trial.FixedTrial):  # type: ignore[misc]
        def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
            if self._distributions.setdefault(name, distribution) != distribution:
                raise ValueError(f"{name!r} is suggested twice, from different ranges")
            return 0

    return Recorder({})
