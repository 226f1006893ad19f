"""What setup.cfg has no words for: the examples lie at the top of the checkout, and within tuner in a wheel."""

from pathlib import Path

from setuptools import find_packages, setup

# The hosts of a cluster get some of these folders only, and install tuner from what they got.
EXAMPLES = [name for name in ("cluster", "experiments", "search_spaces", "trainables") if Path(name).is_dir()]

setup(
    packages=[*find_packages(include=["tuner", "tuner.*"]), *(f"tuner.examples.{name}" for name in EXAMPLES)],
    package_dir={f"tuner.examples.{name}": name for name in EXAMPLES},
)
