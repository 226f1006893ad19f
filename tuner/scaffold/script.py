"""What a search could do with a script: read from its text, without running it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import InputError
from tuner.scaffold.domains import Proposal, Use, propose
from tuner.scaffold.hyperparameters import (
    DataclassFound,
    Hyperparameter,
    calls_named,
    dataclasses_in,
    of_argparse,
    of_constants,
)
from tuner.scaffold.metrics import Reported, reported
from tuner.spec.quantities import counted
from tuner.trainable.script import read_script
from tuner.trainable.source import name_of

_ENTRIES = ("train", "main", "run", "fit", "objective", "trainable")
"""Names of functions that train, in the order of preference."""


@dataclass(frozen=True)
class ScriptProposal:
    """The search that is proposed for a script."""

    script: Path
    function: str
    """The function that a trial calls; empty: a trial runs the whole script."""
    found: str
    """What was read, in words."""
    proposals: tuple[Proposal, ...]
    reported: Reported

    def of(self, use: Use) -> list[Proposal]:
        """The proposals with that use."""
        return [one for one in self.proposals if one.use == use]


def read(script: Path) -> ScriptProposal:
    """The proposal for ``script``. Raises InputError if it cannot be read, or holds no hyperparameter."""
    if not script.is_file():
        raise InputError(f"--from {script}: there is no such file: give the path of a script")
    source = read_script(script.name, (script.parent.resolve(),)).source
    tree = ast.parse(source)
    candidates = [*_whole(script, source, tree), *_functions(script, tree)]
    best = max(candidates, key=lambda one: (len(one.of("search")), len(one.of("unsure"))), default=None)
    if best is None or not (best.of("search") or best.of("unsure")):
        raise InputError(_nothing(script, tree))
    if best.of("search"):
        return best
    guesses = (replace(one, use="search") if one.use == "unsure" else one for one in best.proposals)
    return replace(best, proposals=tuple(guesses))


def _nothing(script: Path, tree: ast.Module) -> str:
    text = (
        f"--from {script}: no hyperparameters found: tuner reads arguments of argparse (--lr), fields of a dataclass "
        "that a function takes (def train(config: Config)), and constants in capitals (LEARNING_RATE = 0.1)"
    )
    unused = next(iter(dataclasses_in(tree)), None)
    if unused is None:
        return text
    if started := _starts(tree):
        return (
            f"{text}; {script.name} begins to work when it is imported (line {started}), so that a trial cannot call a "
            'function of it: put that line below if __name__ == "__main__"'
        )
    return f"{text}; no function that trains takes {unused.name} (line {unused.line})"


def _whole(script: Path, source: str, tree: ast.Module) -> Iterator[ScriptProposal]:
    """The whole script as the trainable: its arguments, and its constants."""
    arguments, words = of_argparse(source), []
    if arguments:
        words.append(f"{counted(len(arguments), 'argument')} of argparse")
    for one in dataclasses_in(tree):
        if not arguments and _is_handed_on(one, tree):
            arguments = [replace(field, can_be_false=field.default is not True) for field in one.fields]
            words.append(f"{counted(len(arguments), 'field')} of {one.name}, which become arguments")
    taken = {one.name.lower() for one in arguments} | _defaults(tree)
    own = [one for one in of_constants(source) if one.name.lower() not in taken]
    if own:
        words.append(counted(len(own), "constant"))
    if words:
        yield _proposal(script, "", " and ".join(words), [*arguments, *own], tree)


def _is_handed_on(one: DataclassFound, tree: ast.Module) -> bool:
    """Whether the class itself is given to a function, as in ``tyro.cli(Config)``, that reads a command line."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    readers = (call for call in calls if name_of(call.func) in ("cli", "parse", "wrap", "HfArgumentParser"))
    handed = (node for call in readers for node in (*call.args, *(keyword.value for keyword in call.keywords)))
    return any(name_of(node) == one.name for node in handed)


def _defaults(tree: ast.Module) -> set[str]:
    """The names, in small letters, that give an argument its default: the argument sets the value then."""
    calls = calls_named(tree, "add_argument")
    nodes = (keyword.value for call in calls for keyword in call.keywords if keyword.arg == "default")
    return {name_of(node).lower() for node in nodes if isinstance(node, ast.Name)}


def _functions(script: Path, tree: ast.Module) -> Iterator[ScriptProposal]:
    """Functions that take a dataclass and train, where the script can be imported."""
    if _starts(tree):
        return
    for one in dataclasses_in(tree):
        takers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and _takes(node, one.name)]
        trains = [node for node in takers if node.name in _ENTRIES or any(calls_named(node, "report"))]
        if trains:
            chosen = min(trains, key=lambda node: _ENTRIES.index(node.name) if node.name in _ENTRIES else len(_ENTRIES))
            words = f"{counted(len(one.fields), 'field')} of {one.name}, which {chosen.name} takes"
            yield _proposal(script, chosen.name, words, one.fields, tree)


def _takes(node: ast.FunctionDef, name: str) -> bool:
    """Whether the first argument of a function is a ``name``, and no other one is required."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    if not arguments or arguments[0].annotation is None or len(arguments) - 1 > len(node.args.defaults):
        return False
    if any(default is None for default in node.args.kw_defaults):
        return False
    written = ast.unparse(arguments[0].annotation).strip("'\"")
    return name in (part.strip() for part in written.split("|"))


def _starts(tree: ast.Module) -> int:
    """The line at which the import of the script begins to work, such as a call of ``main()``; 0 if there is none."""
    for node in tree.body:
        match node:
            case ast.For() | ast.While():
                return node.lineno
            case ast.Expr(value=ast.Call(func=function)) if name_of(function) in _ENTRIES:
                return node.lineno
    return 0


def _proposal(
    script: Path, function: str, found: str, hyperparameters: Sequence[Hyperparameter], tree: ast.Module
) -> ScriptProposal:
    return ScriptProposal(script, function, found, tuple(map(propose, hyperparameters)), reported(tree))


def trainable_of(proposal: ScriptProposal, folder: Path) -> str:
    """How an experiment in ``folder`` names the script: by the shortest path that finds no other file first."""
    script = proposal.script.resolve()
    folder, here = folder.resolve(), Path.cwd()
    names = (os.path.relpath(script, folder), os.path.relpath(script, here), str(script))
    name = next((name for name in names if _first(name, (here, folder, folder.parent)) == script), names[-1])
    return f"{name}:{proposal.function}" if proposal.function else name


def _first(name: str, roots: Sequence[Path]) -> Path | None:
    """The file that an experiment's roots give for ``name``. Its folder may not be there yet."""
    paths = (Path(os.path.normpath(root / name)) for root in roots)
    return next((path.resolve() for path in paths if path.is_file()), None)
