"""The search algorithms: one file each. To add one, write its file and name it in `AnySearch`."""

from typing import Annotated

from pydantic import Field

from tuner.searchers.bohb import Bohb
from tuner.searchers.grid import Grid
from tuner.searchers.hyperopt import HyperOpt
from tuner.searchers.optuna import Optuna
from tuner.searchers.random import Random
from tuner.searchers.ray import RaySearch

AnySearch = Annotated[Random | Grid | Optuna | HyperOpt | Bohb | RaySearch, Field(discriminator="kind")]
