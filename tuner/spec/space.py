"""The search space, for the rest of the program: what it is made of, and the three ways in which one is read."""

from tuner.spec.constraints import Constraint
from tuner.spec.domains import Choice, Computed, Constant, Domain, GridSearch
from tuner.spec.enumeration import GridWalk
from tuner.spec.grammar import json_schema
from tuner.spec.param_space import space_from_param_space
from tuner.spec.prior import Prior
from tuner.spec.ranges import Float, Integer, Normal
from tuner.spec.space_model import Condition, Parameter, Path, Space, at
from tuner.spec.space_reader import read_space

__all__ = [
    "Choice",
    "Computed",
    "Condition",
    "Constant",
    "Constraint",
    "Domain",
    "Float",
    "GridSearch",
    "GridWalk",
    "Integer",
    "Normal",
    "Parameter",
    "Path",
    "Prior",
    "Space",
    "at",
    "json_schema",
    "read_space",
    "space_from_param_space",
]
