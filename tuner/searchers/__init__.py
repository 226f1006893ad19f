"""The search algorithms, one file each; the union below is the registry of the built-in ones.

Your own search derives from `SearchSpec`, and builds a `Searcher`; see docs/how-to/add-a-searcher.md.
"""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SerializeAsAny, WrapValidator

from tuner.searchers.auto import Auto
from tuner.searchers.base import PastTrial, Searcher, SearchSpec
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.gp.spec import Gp
from tuner.searchers.grid import Grid
from tuner.searchers.hyperopt.spec import HyperOpt
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Random
from tuner.searchers.ray import RaySearch
from tuner.spec.algorithm import as_built, spec_as_mapping
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

__all__ = [
    "AnySearch",
    "Auto",
    "Bohb",
    "Configuration",
    "Gp",
    "Grid",
    "HyperOpt",
    "Optuna",
    "PastTrial",
    "Random",
    "RaySearch",
    "SearchProblem",
    "SearchSpec",
    "Searcher",
    "Space",
    "spec_as_mapping",
]

if TYPE_CHECKING:
    AnySearch = SearchSpec
else:
    AnySearch = Annotated[
        Auto | Random | Grid | Optuna | HyperOpt | Bohb | Gp | RaySearch,
        Field(discriminator="kind"),
        WrapValidator(as_built),  # a third party's was validated by its own class
        SerializeAsAny(),
    ]
