"""Searches in virtual time, through tabulated learning curves: the searchers and schedulers of `run`, no cluster."""

from tuner.simulator.simulation import Event, Trace, simulate
from tuner.simulator.table import Table

__all__ = ["Event", "Table", "Trace", "simulate"]
