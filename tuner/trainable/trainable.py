"""A user's training procedure: loaded from its module, described by its own signature."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from tuner.errors import InputError, blaming, did_you_mean, shortened
from tuner.spec.configuration import Configuration
from tuner.spec.user_imports import import_attribute, no_exit, text_of, user_code
from tuner.spec.values import represented
from tuner.storage.pickled import Pickled
from tuner.trainable.adapter import Adapter, KeyPath
from tuner.trainable.bound_parameters import reducers
from tuner.trainable.kinds import as_function
from tuner.trainable.optuna_objective import Objective, is_objective
from tuner.trainable.references import adapter_of
from tuner.trainable.source import function_of, inside_partials
from tuner.trainable.unread import never_given, never_read
from tuner.trainable.unsuitable import unsuitable

_SHOWN = 200
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True)
class Trainable:
    """The functions of one trainable module (DESIGN 3.3); the optional ones are None if the module has none."""

    reference: str
    roots: tuple[Path, ...]
    train: Callable[[Any], Any]
    config_type: type | None
    """The dataclass or pydantic model that ``train`` takes; None if it takes a plain dict."""
    module: ModuleType

    def _optional(self, name: str) -> Callable[..., Any] | None:
        function = getattr(self.module, name, None)
        return function if callable(function) else None

    @property
    def parameters(self) -> tuple[str, ...] | None:
        """Names of what its Config takes; None if it takes a plain dict."""
        return None if self.config_type is None else tuple(_fields(self.config_type) or ())

    @property
    def can_evaluate(self) -> bool:
        return self._optional("evaluate") is not None

    @property
    def can_validate(self) -> bool:
        """Whether ``evaluate`` takes a ``split``, so that validation metrics can be computed again."""
        function = self._optional("evaluate")
        return function is not None and "split" in inspect.signature(function).parameters

    def evaluate(self, config: Configuration, checkpoint: Path, split: str) -> dict[str, float]:
        """Metrics of the model in ``checkpoint`` on ``split`` (``val`` or ``test``)."""
        function = self._optional("evaluate")
        assert function is not None, "ask can_evaluate first"
        with user_code(self.roots):
            extra = {"split": split} if self.can_validate else {}
            metrics = function(self.make_config(config), checkpoint, **extra)
        return {name: float(value) for name, value in metrics.items()}

    @property
    def can_load_model(self) -> bool:
        return self._optional("load_model") is not None

    def load_model(self, config: Configuration, checkpoint: Path) -> Any:
        """The ``torch.nn.Module`` in ``checkpoint``."""
        function = self._optional("load_model")
        assert function is not None, "ask can_load_model first"
        with user_code(self.roots):
            return function(self.make_config(config), checkpoint)

    @property
    def can_train_many(self) -> bool:
        return self._optional("train_many") is not None

    def train_many(
        self, configs: Sequence[Configuration], report: Callable[..., bool], checkpoints: Sequence[Path] | None
    ) -> None:
        """Trains configurations that differ in numbers only as one model.

        ``report(number, metrics, save)`` is called for each, and says whether that one continues.
        """
        function = self._optional("train_many")
        assert function is not None, "ask can_train_many first"
        function([self.make_config(config) for config in configs], report, checkpoints)

    def shape(self, config: Configuration) -> Hashable:
        """Equal for configurations that `train_many` can train as one; the module's ``shape`` knows, if it has one."""
        function = self._optional("shape")
        if function is None:
            return None
        found: Hashable = function(self.make_config(config))
        return found

    def prepare(self, config: Configuration) -> Configuration:
        """Runs the module's ``prepare``; the parameters that it replaces for every trial (none without it)."""
        function = self._optional("prepare")
        if function is None:
            return {}
        with user_code(self.roots):
            return dict(function(self.make_config(config)) or {})

    def checkpoint_bytes(self, config: Configuration) -> int | None:
        """The module's own estimate of one checkpoint's size; None if it gives none."""
        function = self._optional("checkpoint_bytes")
        if function is None:
            return None
        with user_code(self.roots):
            size = int(function(self.make_config(config)))
        if not 0 <= size < 2**63:
            raise ValueError("it must return a number of bytes, from 0 to 2**63 - 1")
        return size

    def micro_batch(self, values: Configuration) -> int | None:
        """Examples that go through the model at once with ``values``; None if the trainable has no ``micro_batch``.

        That is ``micro_batch``, or all of ``batch_size`` where it is None or larger.
        """
        if self.config_type is None:
            read = values
        else:
            with user_code(self.roots), blaming(f"trainable {self.reference}"):
                config = self.make_config(values)
            read = {name: getattr(config, name) for name in self.parameters or ()}
        sizes = (read.get("micro_batch"), read.get("batch_size"))
        return min((size for size in sizes if isinstance(size, int)), default=None) if "micro_batch" in read else None

    def make_config(self, values: Configuration) -> Any:
        """The argument of ``train``: a ``config_type`` with ``values``, or a plain dict.

        Raises ValueError if the values do not fit the type.
        """
        if self.config_type is None:
            return values
        with no_exit():
            try:
                return self._adapter.validate_json(json.dumps(values), strict=True)
            except (TypeError, PydanticSchemaGenerationError):  # values or fields that are arbitrary Python objects
                return self.config_type(**values)

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        """Of `config_type`. Raises PydanticSchemaGenerationError."""
        assert self.config_type is not None
        return TypeAdapter(self.config_type)

    def config_problems(self, values: Configuration) -> list[tuple[KeyPath, str]]:
        """Why ``values`` do not fit ``config_type``: (path of the key, message); empty if they do."""
        if isinstance(self.train, Adapter):
            return self.train.config_problems(values)
        if self.config_type is None:
            return []
        found = list(_unknown_names(self.config_type, values, ()))
        unknown = {path for path, _ in found}
        try:
            self.make_config(values)
        except ValidationError as error:
            for details in error.errors():
                path = tuple(str(part) for part in details["loc"])
                if path not in unknown:
                    found.append((path, _message(details["type"], details["msg"], details["input"])))
        except Exception as error:  # noqa: BLE001 - the user's own __post_init__ may raise anything: it is shown
            if not unknown:
                text = text_of(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {text_of(error)}"
                found.append(((), text))
        return found

    def never_read(self, names: Sequence[str]) -> list[str]:
        """Those of the parameters ``names`` (dotted) that the user's functions certainly never read."""
        others = [f for f in map(self._optional, ("prepare", "evaluate", "load_model", "checkpoint_bytes")) if f]
        return never_read(self.train, others, self.config_type, names, self.roots)

    def never_given(self, names: Sequence[str]) -> list[str]:
        """The keys that the function certainly reads, and that are not among the parameters ``names`` (dotted)."""
        if self._optional("prepare"):  # it may give more
            return []
        return never_given(self.train, self.config_type, names, self.roots)


def _message(kind: str, message: str, value: Any) -> str:
    if kind == "missing":
        return "required by the trainable, but neither in params nor in search_space"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    expected = message.removeprefix("Input should be ")
    return f"must be {expected}, not {shortened(represented(value), _SHOWN)}"


def _fields(type_: Any) -> dict[str, Any] | None:
    """Names and types of a dataclass's or model's fields; None for any other type."""
    if isinstance(type_, type) and issubclass(type_, BaseModel):
        return {name: field.annotation for name, field in type_.model_fields.items()}
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        hints = _hints(type_)
        return {field.name: hints.get(field.name) for field in dataclasses.fields(type_) if field.init}
    return None


def _unknown_names(type_: Any, values: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    fields = _fields(type_)
    if fields is None:
        return
    for name, value in values.items():
        if name not in fields:
            yield (*path, name), f"the trainable has no such parameter; {did_you_mean(name, list(fields))}"
        elif isinstance(value, Mapping):
            yield from _unknown_names(fields[name], value, (*path, name))


def load_trainable(reference: str, roots: tuple[Path, ...], pickles: Sequence[Pickled] = ()) -> Trainable:
    """Imports ``reference`` (``module:function`` or ``file.py:function``), or opens it, and reads its signature.

    A script (``file.py``) is not imported. Of whatever kind it is (`tuner.trainable.references`,
    `tuner.trainable.kinds`), its ``train`` is a function of the configuration. Raises InputError when it cannot be
    imported, or is not a function of one argument.
    """
    if adapter := adapter_of(reference, roots):
        return Trainable(reference, roots, adapter, None, adapter.module)
    train = import_attribute(reference, roots, pickles=pickles)
    pickled = train if isinstance(train, PickledFunction) else None
    train = pickled.function if pickled else train
    if complaint := unsuitable(train):
        raise InputError(f"{reference} {complaint}")
    if _is_compiled(train):
        raise InputError(
            f"{reference} is built into Python or compiled, and takes no config: write a function def train(config)"
        )
    try:
        with user_code(roots):
            train = as_function(train)
            parameters = list(inspect.signature(train).parameters.values())
            takes_trial = is_objective(train)
            if pickled:  # its module is the one that happens to run here
                module, config_type = ModuleType(""), pickled.config_type
            else:
                module = inspect.getmodule(train) or ModuleType("")
                config_type = _config_type(train, parameters[0]) if parameters and not takes_trial else None
    except Exception as error:  # noqa: BLE001 - the user's object may raise anything when it is looked at: it is shown
        raise InputError(
            f"{reference} cannot be described ({type(error).__name__}: {text_of(error)}): write def train(config)"
        ) from None
    required = [p for p in parameters[1:] if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not parameters or required or parameters[0].kind in (parameters[0].KEYWORD_ONLY, parameters[0].VAR_KEYWORD):
        names = ", ".join(p.name for p in parameters)
        raise InputError(f"{reference} takes ({names}); a trainable takes one argument, its config: def train(config)")
    return Trainable(reference, roots, Objective(train) if takes_trial else train, config_type, module)


@dataclass(frozen=True)
class PickledFunction:
    """What is pickled of a trainable that has no importable name."""

    function: Callable[[Any], Any]
    config_type: type | None
    """Read before: a pickled function no longer knows the names in its annotations."""


def importable_name(function: Callable[..., Any]) -> tuple[str, Path | None] | None:
    """``module:name`` by which every process finds ``function``, and the folder of that module; None if there is none.

    The script or notebook that runs here (``__main__``) is not such a module: to import it again is to run it again.
    The folder is None for an installed package.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if module in (None, "__main__", "__mp_main__") or file is None or getattr(loaded, name, None) is not function:
        return None
    folder = Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]
    return f"{module}:{name}", None if "site-packages" in folder.parts else folder


def pickle_function(function: Callable[..., Any], file: str) -> Pickled:
    """``function``, pickled with the type of its config. Raises InputError if that is not possible."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # `load_trainable` says what is wrong with it
        parameters = []
    config_type = _config_type(function, parameters[0]) if parameters else None
    return Pickled.of(PickledFunction(function, config_type), file, function, reducers())


def _is_compiled(train: Any) -> bool:
    """Whether it is a function or a class without Python code, such as ``os.system``, which takes no config."""
    train = inside_partials(train)
    return type(train) in _COMPILED or (issubclass(type(train), type) and not train.__flags__ & _HEAP_TYPE)


_COMPILED = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)

_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that a ``class`` statement made, and some compiled ones."""


def _config_type(train: Callable[[Any], Any], parameter: inspect.Parameter) -> type | None:
    hint = _hints(function_of(train)).get(parameter.name)
    candidates = [hint, *typing.get_args(hint)]
    return next((t for t in candidates if _fields(t) is not None), None)


def _hints(annotated: Any) -> dict[str, Any]:
    """The types of its arguments or fields; none where an annotation cannot be evaluated, as type checkers need not."""
    try:
        return typing.get_type_hints(annotated)
    except Exception:  # noqa: BLE001 - an annotation is an expression of the user's, and may raise anything
        return {}
