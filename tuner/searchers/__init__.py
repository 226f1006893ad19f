"""The search algorithms: one file each. To add one, write its file and name it in `AnySearch`."""

from typing import Annotated

from pydantic import Field

from tuner.searchers.grid import Grid
from tuner.searchers.optuna import Optuna
from tuner.searchers.random import Random

AnySearch = Annotated[Random | Grid | Optuna, Field(discriminator="kind")]
