"""The search space, for the rest of the program: what it is made of, and the three ways in which one is read."""

from tuner.spec.space.constraints import Constraint
from tuner.spec.space.domains import Choice, Computed, Constant, Domain, GridSearch
from tuner.spec.space.enumeration import GridWalk
from tuner.spec.space.from_ray import space_from_param_space
from tuner.spec.space.grammar import json_schema
from tuner.spec.space.model import Space, at
from tuner.spec.space.parameter import Condition, Parameter, Path
from tuner.spec.space.prior import Prior
from tuner.spec.space.ranges import Float, Integer, Normal
from tuner.spec.space.reader import read_space
from tuner.spec.space.writer import python_only, to_yaml

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
    "python_only",
    "read_space",
    "space_from_param_space",
    "to_yaml",
]
