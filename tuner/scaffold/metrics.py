"""The metrics that a script reports, and which of them a search compares."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tuner.scaffold.hyperparameters import calls_named

_TIMES = ("epoch", "step", "iteration", "global_step", "training_iteration", "round")
"""Metrics that count progress, in the order in which a scheduler should count by them."""

_GOOD = re.compile(
    r"(^|[_/])(acc\d*|accuracy|auc|auroc|f1\w*|precision|recall|r2|score|rewards?|returns?|bleu|rouge\w*|m?iou|m?ap|dice"
    r"|ndcg\w*|success\w*|psnr|ssim|likelihood)([_/]|$)"
)
_BAD = re.compile(r"(^|[_/])(\w*loss|err\w*|rmse|mse|mae|mape|perplexity|ppl|nll|wer|cer|fid|regret|cost)([_/]|$)")
_HELD_OUT = re.compile(r"(^|[_/])(val\w*|eval\w*|dev|heldout|holdout)([_/]|$)")
_OF_TRAINING = re.compile(r"(^|[_/])(train\w*|batch)([_/]|$)")
_OF_TEST = re.compile(r"(^|[_/])test([_/]|$)")


@dataclass(frozen=True)
class Reported:
    """The metrics of a script."""

    names: tuple[str, ...] = ()
    line: int = 0
    """Of the first report; 0 if there is none."""

    @property
    def time(self) -> str:
        """The metric that counts progress; empty if there is none."""
        return next((name for name in _TIMES if name in self.names), "")

    @property
    def objective(self) -> tuple[str, Literal["min", "max", ""]]:
        """The metric to compare and its direction, empty where it is not certain. A held-out metric comes first."""
        scored = sorted((name for name in self.names if name not in _TIMES), key=_rank)
        known = next((name for name in scored if mode_of(name)), "")
        if known:
            return known, mode_of(known)
        return (scored[0], "") if len(scored) == 1 else ("", "")


def mode_of(name: str) -> Literal["min", "max", ""]:
    """Whether a metric of that name is to be small or large; empty if its name does not say so."""
    lowered = name.lower()
    return "min" if _BAD.search(lowered) else "max" if _GOOD.search(lowered) else ""


def _rank(name: str) -> int:
    """The less, the better: held-out data first, then other data, and a measure such as accuracy before a loss."""
    lowered = name.lower()
    is_train, is_test = _OF_TRAINING.search(lowered), _OF_TEST.search(lowered)
    part = 0 if _HELD_OUT.search(lowered) else 2 if is_train else 3 if is_test else 1
    return 2 * part + (mode_of(lowered) == "min")


def reported(tree: ast.AST) -> Reported:
    """What the calls of ``tuner.report``, ``tune.report`` and ``session.report`` in a script report.

    If a framework reports (``callbacks=[Report()]``), the metrics are those that ``self.log`` names.
    """
    calls = list(calls_named(tree, "report"))
    names = [name for call in calls for name in _names(tree, call)]
    if not names and (frameworks := list(calls_named(tree, "Report"))):
        calls = frameworks
        names = [
            argument.value
            for log in calls_named(tree, "log")
            for argument in log.args[:1]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
    return Reported(tuple(dict.fromkeys(names)), calls[0].lineno if calls else 0)


def _names(tree: ast.AST, call: ast.Call) -> Iterator[str]:
    """The names of the metrics in one call."""
    for argument in call.args[:2]:  # of the integration of Accelerate, the metrics are the second argument
        yield from _keys(tree, argument)
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg == "metrics":
            yield from _keys(tree, keyword.value)
        elif keyword.arg != "checkpoint":
            yield keyword.arg


def _keys(tree: ast.AST, node: ast.expr, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The keys of a dict, also if a variable holds it; ``seen``: the variables on the way to it."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    yield from _keys(tree, value, seen)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _keys(tree, left, seen)
            yield from _keys(tree, right, seen)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from (keyword.arg for keyword in keywords if keyword.arg)
        case ast.Name(id=variable) if variable not in seen:
            yield from _assigned(tree, variable, seen | {variable})


def _assigned(tree: ast.AST, variable: str, seen: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == variable:
                yield from _keys(tree, value, seen)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)), ctx=ast.Store()):
                if name == variable:
                    yield key
