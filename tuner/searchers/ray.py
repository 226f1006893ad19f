"""Any searcher written for Ray Tune."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tuner.errors import InputError, blaming, did_you_mean
from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.unsupported import Problems, unsupported_by_model, unsupported_conditions, unsupported_priors
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Float, Integer, Parameter, Space, at
from tuner.spec.user_imports import import_attribute, no_exit, signature_of, text_of

if TYPE_CHECKING:
    from ray.tune.search import Searcher as Theirs

_METRIC = "objective"
"""The name of the objective between tuner and the searcher: nobody else sees it."""

_ELSEWHERE = {"metric": "objective.metric", "mode": "objective.mode", "points_to_evaluate": "search.points_to_evaluate"}
"""Arguments of Ray's searchers that have a key of their own in an experiment, and the key."""

_SEEDS = ("seed", "random_state_seed")
"""Arguments by which Ray's searchers take a seed."""


class RaySearch(SearchSpec):
    """A ``ray.tune.search.Searcher`` subclass, with keyword ``options``.

    It gets the space as Ray's own domains through ``set_search_properties``, as from Ray Tune. ``seed`` is passed on
    where its constructor has an argument ``seed`` or ``random_state_seed``. A trial that a scheduler stopped counts
    with its last value. If the searcher asks to wait (it suggests None), a random configuration runs. It
    learns of a configuration that it did not suggest when that ends, if it has ``add_evaluated_point``.

    Example:
        >>> import tuner
        >>> searcher = tuner.searchers.RaySearch(class_path="ray.tune.search.hyperopt:HyperOptSearch")
        >>> searcher.kind
        'ray'
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "ray", "class_path": "ray.tune.search.hyperopt:HyperOptSearch"}]}
    )

    kind: Literal["ray"] = "ray"
    """The name of this search algorithm."""
    class_path: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_]\w*$")]
    """``module:Class``, or ``path/to/file.py:Class``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class, but for ``metric``, ``mode`` and ``points_to_evaluate``."""

    def build(self, task: SearchProblem) -> Searcher:
        return RaySearcher(task, self._construct(task))

    def modelled(self, task: SearchProblem, slots: int) -> None:
        return None

    def mixes_fidelities(self, task: SearchProblem) -> bool:
        return True

    def validate_options(self) -> Problems:
        misplaced: Problems = [
            (("options", name), f"belongs to {_ELSEWHERE[name]}: write it there")
            for name in self.options
            if name in _ELSEWHERE
        ]
        if misplaced:
            return misplaced
        try:
            self._arguments(self._load(), seed=0)
        except InputError as error:
            return [(("class_path",), str(error))]
        return []

    def validate_space(self, space: Space) -> Problems:
        found = unsupported_by_model(space)
        found += unsupported_conditions(space, "use search.kind optuna, hyperopt, bohb or random")
        found += unsupported_priors(space, "use search.kind optuna, hyperopt, bohb or random")
        if found or self.validate_options():
            return found
        try:
            self._construct(SearchProblem(space, ("min",), trials=1, max_t=None, seed=0))
        except InputError as error:
            return [((), str(error))]
        return []

    def _construct(self, task: SearchProblem) -> Theirs:
        """The searcher, told of the space. Raises InputError if it refuses its options or the space."""
        searcher_class = self._load()
        arguments = self._arguments(searcher_class, task.seed)
        try:
            with no_exit():
                searcher = searcher_class(**arguments)
                accepted = searcher.set_search_properties(_METRIC, task.mode, _param_space(task.space))
        except Exception as error:  # noqa: BLE001 - the user's class may raise anything: it is shown, not hidden
            reason = f"{type(error).__name__}: {text_of(error)}"
            raise InputError(f"{self.class_path} refuses its options or this search space: {reason}") from None
        if not accepted:
            raise InputError(
                f"{self.class_path} takes no search space: its set_search_properties must keep it and return True"
            )
        return searcher

    def _load(self) -> type[Theirs]:
        from ray.tune.search import Searcher as Theirs

        loaded = import_attribute(self.class_path, (Path.cwd(),))
        is_class = issubclass(type(loaded), type)  # where it is none, isinstance may raise
        if not (is_class and isinstance(loaded, type) and issubclass(loaded, Theirs)):
            raise InputError(f"{self.class_path} is not a subclass of ray.tune.search.Searcher")
        return loaded

    def _arguments(self, searcher_class: type[Theirs], seed: int) -> dict[str, Any]:
        """The options, checked against the constructor, and the seed."""
        signature = signature_of(searcher_class, self.class_path)
        arguments = {name: seed for name in _SEEDS if name in signature.parameters} | self.options
        try:
            signature.bind(**arguments)
        except TypeError as error:
            known = [name for name in signature.parameters if name not in _ELSEWHERE]
            unknown = next((name for name in self.options if name not in signature.parameters), "")
            hint = f"; {did_you_mean(unknown, known)}" if unknown else ""
            raise InputError(f"{self.class_path}: {error}{hint}") from None
        return arguments


class RaySearcher(Searcher):
    """Passes questions and news on to a searcher of Ray's."""

    def __init__(self, task: SearchProblem, theirs: Theirs) -> None:
        from numpy.random import default_rng

        self._space = task.space
        self._theirs = theirs
        self._rng = default_rng(task.seed)
        self._pending: dict[str, Configuration | None] = {}
        """Trials that have not ended, by id: what runs where it was not suggested by ``theirs``."""

    def suggest(self, trial_id: str) -> Configuration | None:
        with self._blaming():
            suggested = self._theirs.suggest(trial_id)
        if suggested == self._theirs.FINISHED:
            return None
        if suggested is None:
            configuration = self._space.sample(self._rng)
            self.register(trial_id, configuration)
            return configuration
        self._pending[trial_id] = None
        return self._space.build(lambda parameter: self._chosen(parameter, suggested))

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._pending[trial_id] = configuration

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending and self._pending[trial_id] is None:
            with self._blaming():
                self._theirs.on_trial_result(trial_id, _result(step, value))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        if trial_id not in self._pending:
            return
        adopted = self._pending.pop(trial_id)
        if adopted is None:
            result = None if values is None else _result(step, values[0])
            with self._blaming():
                self._theirs.on_trial_complete(trial_id, result=result, error=values is None)
        elif values is not None and _learns_points(self._theirs):
            free = [p.path for p in self._space.free]
            with self._blaming():
                self._theirs.add_evaluated_point({"/".join(path): at(adopted, path) for path in free}, values[0])

    def _blaming(self) -> AbstractContextManager[None]:
        return blaming(f"searcher {type(self._theirs).__qualname__} (search.class_path)")

    def _chosen(self, parameter: Parameter, suggested: dict[str, Any]) -> Any:
        """The value that ``suggested`` holds, as a plain value of the domain.

        Ray's searchers give numpy's numbers, tuples for lists, integers as floats, and quanta outside the range.
        """
        domain = parameter.domain
        try:
            value = at(suggested, parameter.path)
        except KeyError:
            name = type(self._theirs).__name__
            raise InputError(f"{name} suggested no value for {parameter.name}, but {suggested}") from None
        if isinstance(domain, Choice):
            return domain.value(int(domain.to_unit(value) * domain.count))
        if isinstance(domain, (Float, Integer)):
            lower, upper = domain.probes()
            value = min(max(value, lower), upper)
        return domain.from_unit(domain.to_unit(value))

    def __getstate__(self) -> dict[str, Any]:
        from ray import cloudpickle

        return {**self.__dict__, "_theirs": cloudpickle.dumps(self._theirs)}  # it may hold lambdas

    def __setstate__(self, state: dict[str, Any]) -> None:
        from ray import cloudpickle

        self.__dict__.update(state, _theirs=cloudpickle.loads(state["_theirs"]))


def _learns_points(searcher: Theirs) -> bool:
    from ray.tune.search import Searcher as Theirs

    return type(searcher).add_evaluated_point is not Theirs.add_evaluated_point


def _result(step: int, value: float) -> dict[str, Any]:
    return {_METRIC: value, "training_iteration": step}


def _param_space(space: Space) -> dict[str, Any]:
    """``space`` as Ray writes it: its domains have our names and take our arguments."""
    from ray import tune

    def theirs(parameter: Parameter) -> Any:
        ((name, arguments),) = parameter.domain.to_yaml().items()
        return tune.choice(arguments) if name == "choice" else getattr(tune, name)(*arguments)

    return space.build(theirs)
