"""Reads a search space from YAML, and finds everything that is wrong with it in one pass."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from tuner.errors import Problem, did_you_mean
from tuner.spec import document as yaml_document
from tuner.spec.document import Document, describe_type, dotted
from tuner.spec.space.domains import Choice, Constant, Domain, GridSearch
from tuner.spec.space.grammar import ATTRIBUTES, BELIEF, DEFAULT, FORMS, RESERVED, Form, key_problem
from tuner.spec.space.model import MAX_PARAMETERS, Space
from tuner.spec.space.parameter import Condition, Default, Parameter, Path
from tuner.spec.space.prior import Confidence, Prior
from tuner.spec.space.ranges import Integer
from tuner.spec.space.writer import holds_domain
from tuner.spec.values import brief, is_number, value_key


def read_space(document: Document, path: yaml_document.Path, problems: list[Problem]) -> Space | None:
    """The search space at ``path`` of ``document``.

    Appends every problem found to ``problems``, and returns None if there is one; nothing that a user can write
    raises. ``path`` must exist.
    """
    value = document.value
    for key in path:
        value = value[key]
    reader = _Reader(document, [])
    if not isinstance(value, dict):
        reader.problem(path, f"a search space is a mapping from parameter names to domains, not {describe_type(value)}")
    elif not value:
        reader.problem(path, "the search space is empty: write a parameter, such as lr: {loguniform: [1e-4, 0.1]}")
    elif names := [key for key in value if key in FORMS]:
        domain = names[0]
        remedy = f"write NAME: {{{domain}: {FORMS[domain].usage}}}"
        reader.problem((*path, domain), f"the domain {domain} stands where a parameter's name belongs: {remedy}")
    else:
        reader.group(value, path, (), ())
    parameters = reader.finish()
    problems += reader.problems
    return None if reader.problems else Space(parameters)


@dataclass(frozen=True)
class _When:
    """A ``when`` as written, and what it governs."""

    value: Any
    place: yaml_document.Path
    target: Path
    """The parameter or group that it governs."""
    start: int
    """How many parameters come before the first one that it governs."""


@dataclass(frozen=True)
class _Draft:
    domain: Domain | None
    """None if it is wrong."""
    whens: tuple[_When, ...]
    prior: Prior | None = None
    default: Default | None = None


@dataclass
class _Reader:
    document: Document
    problems: list[Problem]

    def __post_init__(self) -> None:
        self.drafts: dict[Path, _Draft] = {}

    def problem(self, path: yaml_document.Path, message: str) -> None:
        self.problems.append(Problem(self.document.place(path), dotted(path), message))

    def group(self, value: dict[str, Any], path: yaml_document.Path, scope: Path, whens: tuple[_When, ...]) -> None:
        """Drafts every parameter of the mapping at ``path``, whose names begin with ``scope``."""
        for key, child in value.items():
            here = (*path, key)
            if key == RESERVED and scope:
                continue
            if wrong := key_problem(key):
                self.problem(here, wrong)
            elif key in ATTRIBUTES and scope and _is_constant(child):
                self.problem(here, f"{key!r} belongs beside a domain, and this is a group; a constant goes into params")
            else:
                self.parameter(child, here, (*scope, key), whens)

    def parameter(self, value: Any, path: yaml_document.Path, name: Path, whens: tuple[_When, ...]) -> None:
        """Drafts what stands beside one name: a domain, a group or a constant."""
        if _is_constant(value):
            if holds_domain(value):
                self.problem(path, "a list cannot hold domains: give each element a name of its own")
            self.drafts[name] = _Draft(Constant(value), whens)
            return
        if RESERVED in value:
            whens = (*whens, _When(value[RESERVED], (*path, RESERVED), name, len(self.drafts)))
        domains = [key for key in value if key in FORMS]
        beside = (RESERVED, *(key for key in ATTRIBUTES if domains or _is_constant(value.get(key))))
        keys = [key for key in value if key not in beside]
        if domains or not keys:
            domain = self.domain(value, path, domains, keys)
            given = (self.prior(value, path, domain), self.default(value, path, domain)) if domain else ()
            self.drafts[name] = _Draft(domain, whens, *given)
        elif (near := _misspelt(keys, value)) is not None:
            allowed = f"allowed: {', '.join(FORMS)}; did you mean {near!r}?"
            self.problem((*path, keys[0]), f"unknown domain; {allowed}")
            self.drafts[name] = _Draft(None, whens)
        else:
            self.group(value, path, name, whens)

    def domain(self, value: Any, path: yaml_document.Path, domains: list[str], keys: list[str]) -> Domain | None:
        if not keys:
            self.problem(path, f"holds nothing but {' and '.join(map(repr, value))}: a domain is missing")
        elif len(domains) > 1:
            self.problem(path, f"has {len(domains)} domains, {' and '.join(domains)}: keep one of them")
        elif len(keys) > 1:
            for key in keys:
                if key not in domains:
                    allowed = f"a domain allows only {', '.join(map(repr, (RESERVED, *ATTRIBUTES)))} beside it"
                    self.problem((*path, key), f"stands beside the domain {domains[0]}: {allowed}")
        else:
            return self.written(domains[0], value[domains[0]], (*path, domains[0]))
        return None

    def prior(self, value: dict[str, Any], path: yaml_document.Path, domain: Domain) -> Prior | None:
        """The prior of ``domain``; None if there is none, or if it is wrong, after reporting that."""
        key_value, key_confidence = BELIEF
        before = len(self.problems)
        place, confidence = (*path, key_value), value.get(key_confidence, Prior.confidence)
        if confidence not in get_args(Confidence):
            given = did_you_mean(str(confidence), get_args(Confidence))
            self.problem(
                (*path, key_confidence), f"must be a level of confidence, not {describe_type(confidence)}; {given}"
            )
        if key_value not in value:
            if key_confidence in value:
                self.problem((*path, key_confidence), "needs a prior beside it: the value that it is about")
            return None
        if isinstance(domain, GridSearch):
            self.problem(place, "grid_search goes through all its values, whatever is believed of them: use choice")
            return None
        believed = self.value_in(domain, value[key_value], place)
        return Prior(believed, confidence) if len(self.problems) == before else None

    def default(self, value: dict[str, Any], path: yaml_document.Path, domain: Domain) -> Default | None:
        """The default of a parameter; None if there is none, or if it is wrong, after reporting that."""
        if DEFAULT not in value:
            return None
        before = len(self.problems)
        found = Default(self.value_in(domain, value[DEFAULT], (*path, DEFAULT)))
        return found if len(self.problems) == before else None

    def value_in(self, domain: Domain, value: Any, place: yaml_document.Path) -> Any:
        """``value`` as ``domain`` has it, after reporting what is wrong with it."""
        if not isinstance(domain, (Choice, GridSearch)) and (wrong := _number_problem(value, "number")):
            self.problem(place, wrong)
            return value
        if isinstance(domain, Integer) and value == int(value):
            value = int(value)
        if not domain.contains(value):
            self.problem(place, f"{brief(value)} is outside {domain}: choose a value in it, or widen it")
        return value

    def written(self, name: str, value: Any, path: yaml_document.Path) -> Domain | None:
        """The domain ``name`` with the arguments ``value``, or None after reporting what is wrong with them."""
        form = FORMS[name]
        before = len(self.problems)
        arguments = self.arguments(name, form, value, path)
        if arguments is None:
            return None
        for argument, (given, place) in arguments.items():
            if form.of == "list":
                self.check_choices(given, place)
            elif wrong := _number_problem(given, form.of):
                self.problem(place, f"{argument} {wrong}")
        if len(self.problems) > before:
            return None
        plain = {argument: given for argument, (given, _) in arguments.items()}
        if form.of == "list":
            return form.make(tuple(next(iter(plain.values()))))
        if form.of == "integer":
            plain = {argument: int(given) for argument, given in plain.items()}
        domain = form.make(**{**(form.defaults or {}), **plain})
        for argument, message in domain.problems():
            self.problem(arguments[argument][1] if argument in arguments else path, message)
        return domain if len(self.problems) == before else None

    def arguments(
        self, name: str, form: Form, value: Any, path: yaml_document.Path
    ) -> dict[str, tuple[Any, yaml_document.Path]] | None:
        """The arguments by name, each with its path; None after reporting that they do not fit ``form``."""
        required = [argument for argument in form.arguments if argument not in (form.defaults or {})]
        if isinstance(value, dict):
            unknown = [key for key in value if key not in form.arguments]
            for key in unknown:
                self.problem((*path, key), f"unknown argument of {name}; {did_you_mean(key, form.arguments)}")
            if missing := [argument for argument in required if argument not in value]:
                self.problem(path, f"{name} needs {' and '.join(missing)}")
            return None if unknown or missing else {key: (item, (*path, key)) for key, item in value.items()}
        if form.of == "list":
            return {form.arguments[0]: (value, path)}
        if not isinstance(value, list):
            self.problem(path, f"{name} takes {form.usage}, not {describe_type(value)}")
            return None
        if not len(required) <= len(value) <= len(form.arguments):
            self.problem(path, f"{name} takes {form.usage}, not {len(value)} value{'' if len(value) == 1 else 's'}")
            return None
        named = zip(form.arguments, value, strict=False)
        return {argument: (item, (*path, i)) for i, (argument, item) in enumerate(named)}

    def check_choices(self, values: Any, path: yaml_document.Path) -> None:
        if not isinstance(values, list):
            self.problem(path, f"takes a list of values, not {describe_type(values)}")
            return
        if not values:
            self.problem(path, "holds no value: write at least one")
        seen: dict[Any, int] = {}
        for i, value in enumerate(values):
            if (first := seen.setdefault(value_key(value), i)) != i:
                self.problem((*path, i), f"{brief(value)} is repeated: value {first + 1} is the same")
        if any(isinstance(value, str) and not _is_numeric(value) for value in values):
            return  # among words, a quoted number is a word
        for i, value in enumerate(values):
            if isinstance(value, str) and (*path, i) in self.document.quoted:
                self.problem((*path, i), f"{value!r} is text, not a number: remove the quotes")

    def finish(self) -> tuple[Parameter, ...]:
        """Resolves the conditions, now that all names are known."""
        if len(self.drafts) > MAX_PARAMETERS:
            self.problem((), f"a search space has at most {MAX_PARAMETERS:,} parameters, not {len(self.drafts):,}")
            return ()
        order = {name: i for i, name in enumerate(self.drafts)}
        resolved: dict[yaml_document.Path, tuple[Condition, ...]] = {}
        parameters = []
        for name, draft in self.drafts.items():
            for when in draft.whens:
                if when.place not in resolved:
                    resolved[when.place] = tuple(self.conditions(when, order))
            conditions = tuple(condition for when in draft.whens for condition in resolved[when.place])
            if draft.domain is not None:
                parameters.append(Parameter(name, draft.domain, conditions, draft.prior, draft.default))
        return tuple(parameters)

    def conditions(self, when: _When, order: dict[Path, int]) -> Iterator[Condition]:
        if not isinstance(when.value, dict) or not when.value:
            given = "an empty mapping" if when.value == {} else describe_type(when.value)
            wanted = "names earlier parameters and their values, such as {optimizer: sgd}"
            self.problem(when.place, f"{RESERVED!r} {wanted}, not {given}")
            return
        for key, value in when.value.items():
            place = (*when.place, key)
            sibling = (*when.target[:-1], key)
            named = sibling if sibling in order else tuple(key.split("."))
            if named not in order:
                if sibling == when.target or any(name[: len(named)] == named for name in order):
                    self.problem(place, "is a group of parameters: name one parameter in it by its dotted path")
                    continue
                known = [*(name[-1] for name in order if name[:-1] == when.target[:-1]), *map(".".join, order)]
                earlier = [k for k in dict.fromkeys(known) if k != ".".join(when.target)]
                self.problem(place, f"there is no such parameter; {did_you_mean(key, earlier)}")
            elif named == when.target:
                self.problem(place, "a parameter cannot depend on itself")
            elif named[: len(when.target)] == when.target:
                self.problem(place, "a group cannot depend on a parameter inside it")
            elif order[named] >= when.start:
                self.problem(place, f"{'.'.join(named)} comes later: move it above {'.'.join(when.target)}")
            elif (domain := self.drafts[named].domain) is not None:
                yield from self.condition(named, domain, value, place)

    def condition(self, named: Path, domain: Domain, value: Any, place: yaml_document.Path) -> Iterator[Condition]:
        name = ".".join(named)
        if domain.count is None:
            self.problem(place, f"{name} is {domain}, which has no separate values to compare with")
            return
        alternatives = isinstance(value, list) and not domain.contains(value)
        values = tuple(value) if alternatives else (value,)
        if not values:
            self.problem(place, f"names no value of {name}")
        wrong = [(i, item) for i, item in enumerate(values) if not domain.contains(item)]
        for i, item in wrong:
            self.problem((*place, i) if alternatives else place, f"{name} is never {brief(item)}: it is {domain}")
        if values and not wrong:
            yield Condition(named, values)


def _is_constant(value: Any) -> bool:
    return not isinstance(value, dict) or not value


def _misspelt(keys: list[str], value: dict[str, Any]) -> str | None:
    """The domain that the only key of a mapping probably means; a group of one parameter looks similar."""
    if len(keys) != 1 or not isinstance(value[keys[0]], list):
        return None
    plain = keys[0].lower().replace("_", "").replace("-", "")
    return next(iter(difflib.get_close_matches(plain, FORMS, n=1, cutoff=0.75)), None)


def _number_problem(value: Any, of: str) -> str | None:
    if isinstance(value, str) and _is_numeric(value):
        return f"{value!r} is text, not a number: remove the quotes"
    if not is_number(value):
        return f"must be a number, not {describe_type(value)}"
    if isinstance(value, float) and value - value != 0:
        return f"must be a finite number, not {brief(value)}"
    return f"must be a whole number, not {brief(value)}" if of == "integer" and value != int(value) else None


def _is_numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
