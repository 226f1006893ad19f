"""Searches in virtual time, through known learning curves: the searchers and schedulers of `run`, no cluster."""

from tuner.simulator.curves import CurveFunction, Curves
from tuner.simulator.simulation import Costs, Event, Trace, simulate
from tuner.simulator.table import Table

__all__ = ["Costs", "CurveFunction", "Curves", "Event", "Table", "Trace", "simulate"]
