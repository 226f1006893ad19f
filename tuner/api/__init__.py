"""The public face in Python: a ``Search``, and the ``Run`` that it becomes."""

from tuner.api.run import Run, load
from tuner.api.search import Search, SearchPlan, maximize, minimize

__all__ = ["Run", "Search", "SearchPlan", "load", "maximize", "minimize"]
