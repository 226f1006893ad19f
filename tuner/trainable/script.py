"""A plain script as a trainable: the configuration becomes its command-line arguments, and constants of the script."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.errors import InputError, did_you_mean
from tuner.spec.configuration import flat
from tuner.spec.user_imports import find_file
from tuner.trainable.adapter import FileAdapter, KeyPath
from tuner.trainable.arguments import Argument, argv, find, of_argparse, of_click
from tuner.trainable.constants import compiled, constants
from tuner.trainable.declared import Declared, Rejected, declared


class ScriptError(Exception):
    """The script ended with another exit status than 0."""


def is_script(reference: str) -> bool:
    """Whether a ``trainable`` names a file, and no function in it."""
    return reference.endswith(".py")


def read_script(reference: str, roots: tuple[Path, ...]) -> Script:
    """The script ``reference``, which is read and not run.

    Raises InputError if there is no such file in ``roots``, or if it is not Python.
    """
    file = find_file(reference, roots)
    try:
        with tokenize.open(file) as opened:  # it knows a script's own encoding
            source = opened.read()
        ast.parse(source, str(file))
    except SyntaxError as error:
        raise InputError(f"{reference} is not Python: {error.msg} ({file}, line {error.lineno})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{reference} cannot be read: {error}") from None
    return Script(file, source)


@dataclass(frozen=True)
class Script(FileAdapter):
    """A script, called with a configuration."""

    file: Path
    source: str = field(repr=False)

    def __call__(self, config: Mapping[str, Any]) -> None:
        """Runs the script as ``__main__`` in this process.

        Raises what the script raises, and ScriptError if it exits with another status than 0.
        """
        values, last = list(flat(config)), list[str]()
        set_here = {name: value for name, value in values if self._is_constant(name)}
        values = [(name, value) for name, value in values if name not in set_here]
        code = compiled(self.source, self.file, set_here)
        with _as_main(self.file, argv(values)) as main, _arguments(values, last):
            try:
                exec(code, vars(main))
            except SystemExit as end:
                if _is_of_the_trial(end):
                    raise
                if problem := self._problem(end.code, last):
                    raise ScriptError(problem) from None

    def _is_constant(self, name: str) -> bool:
        """Whether the parameter ``name`` sets a constant. An argument of that very name comes first."""
        if name not in constants(self.source):
            return False
        parser = declared(self.source)
        return parser is None or find(name, of_argparse(parser)) is None

    def _problem(self, code: object, last: Sequence[str]) -> str:
        """Why the script exited; empty if all is well."""
        if code is None or code == 0:
            return ""
        if isinstance(code, int):
            return last[-1] if last else f"{self.file.name} exited with status {code}"
        return f"{self.file.name} exited: {code}"

    @property
    def module(self) -> ModuleType:
        """Of the file; it has no functions, as a script is not imported."""
        module = ModuleType(self.file.stem)
        module.__file__ = str(self.file)
        return module

    def config_problems(self, config: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
        """Reasons in the script's text to refuse ``config``: (path of the parameter, message)."""
        parser, found, given = declared(self.source), [], set()
        arguments = of_argparse(parser) if parser else []
        for name, value in flat(config):
            argument = find(name, arguments)
            given.add(argument.shown if argument else "")
            if message := self._complaint(parser, arguments, argument, name, value):
                found.append((tuple(name.split(".")), message))
        found += [
            ((name,), f"required by {self.file.name}, but neither in params nor in search_space")
            for name in (parser.required if parser else ())
            if name not in given
        ]
        return found

    def _complaint(
        self, parser: Declared | None, arguments: list[Argument], argument: Argument | None, name: str, value: Any
    ) -> str:
        known, script = constants(self.source), self.file.name
        if argument is None and name in known:
            return known[name].complaint(script, value)
        if parser is None:  # its arguments are not known; but one in capitals is rather a constant that is misspelled
            return f"{script} has no such constant; {did_you_mean(name, [*known])}" if known and name.isupper() else ""
        if argument is None:
            kind = "argument or constant" if known else "argument"
            allowed = [*dict.fromkeys([*(one.shown for one in arguments), *known])]
            return f"{script} has no such {kind}; {did_you_mean(name, allowed)}"
        try:
            parser.parse_args(argv([(name, value)], arguments))
        except Rejected as error:
            return f"{script} refuses it: {error}"
        return ""


def _is_of_the_trial(end: SystemExit) -> bool:
    """Whether the trial ends, and not the script: Ray raises SystemExit in ``report`` where a trial is stopped."""
    trace = end.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = trace.tb_frame.f_globals.get("__name__", "") if trace else ""
    return type(end) is not SystemExit or str(where).startswith("ray.")


@contextlib.contextmanager
def _as_main(file: Path, arguments: list[str]) -> Iterator[ModuleType]:
    """Within, a new ``__main__`` is the script ``file``, with its command line; Python looks in its folder first."""
    path, before, known = list(sys.path), list(sys.argv), sys.modules["__main__"]
    main = ModuleType("__main__")
    main.__file__ = str(file)
    sys.path.insert(0, str(file.parent))
    sys.argv[:] = [str(file), *arguments]
    sys.modules["__main__"] = main
    try:
        yield main
    finally:
        sys.path[:], sys.argv[:], sys.modules["__main__"] = path, before, known


@contextlib.contextmanager
def _arguments(values: list[tuple[str, Any]], last: list[str]) -> Iterator[None]:
    """Within, a parser of argparse or click gets the arguments in its own spelling.

    ``last`` collects the messages with which parsers refuse them.
    """
    with contextlib.ExitStack() as undo:
        _patch(undo, argparse.ArgumentParser, "parse_known_args", functools.partial(_parse_known_args, values))
        _patch(undo, argparse.ArgumentParser, "exit", functools.partial(_exit, last))
        with contextlib.suppress(ImportError):
            import click

            _patch(undo, click.Command, "make_context", functools.partial(_make_context, values, last))
        yield


def _patch(undo: contextlib.ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Replaces a method; the replacement gets the method that it replaces first."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return replacement(functools.partial(original, self), self, *args, **options)

    setattr(owner, name, method)
    undo.callback(setattr, owner, name, original)


def _is_command_line(args: Any) -> bool:
    return args is None or (isinstance(args, list | tuple) and list(args) == sys.argv[1:])


def _parse_known_args(values: Any, known: Any, parser: Any, args: Any = None, namespace: Any = None) -> Any:
    if _is_command_line(args):
        args = sys.argv[1:] = argv(values, of_argparse(parser))
    return known(args, namespace)


def _exit(last: list[str], known: Any, parser: Any, status: int = 0, message: str | None = None) -> Any:
    if status and message:
        last.append(" ".join(message.split()))
    return known(status, message)


def _make_context(
    values: Any, last: list[str], known: Any, command: Any, info_name: Any, args: Any, parent: Any = None, **extra: Any
) -> Any:
    import click

    if parent is None and _is_command_line(args):
        args = argv(values, of_click(command))
        sys.argv[1:] = args
    try:
        return known(info_name, list(args), parent, **extra)
    except click.ClickException as error:
        last.append(f"{Path(sys.argv[0]).name}: error: {error.format_message()}")
        raise
