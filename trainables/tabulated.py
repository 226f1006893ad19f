"""Replays tabulated learning curves: a search whose trials cost nothing, on real results.

Through tuner:   python -m tuner run experiments/lcbench_asha.yaml --set params.table=PATH
In virtual time: python -m tuner simulate experiments/lcbench_asha.yaml --table PATH

A configuration reports what the nearest one in the table did, step by step, without waiting. The
format of a table is told in tuner/simulator/table.py; `python -m tuner table` writes one from a
finished run.
"""

import functools
import json
import tempfile
from pathlib import Path

from ray import tune

from tuner import Table
from tuner.training.data_errors import DataUnavailable

STATE = "fidelity.json"


def train(config: dict) -> None:
    """Report one row of the table a step, each with a checkpoint.

    Fixed parameters: table (a parquet file), space (the YAML file of the search space), metric and
    fidelity (columns of the table). Reported: the fidelity, the metric, and seconds, which the
    original trial had taken so far.
    """
    table = _table(config)
    done = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            done = _fidelity(Path(directory))

    for step, value, seconds in table.curve(config):
        if step <= done:
            continue
        metrics = {table.fidelity: step, table.metric: value, "seconds": seconds}
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, STATE).write_text(json.dumps(step))
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def evaluate(config: dict, checkpoint: Path, split: str = "val") -> dict[str, float]:
    """What the table holds for the configuration at the fidelity of its checkpoint."""
    if split != "val":
        raise DataUnavailable("a table holds validation results only: there is no test set")
    table, reached = _table(config), _fidelity(Path(checkpoint))
    return {table.metric: next(value for step, value, _ in table.curve(config) if step == reached)}


def prepare(config: dict) -> dict[str, object]:
    """Checks the table before any trial; where it is, for trials with another working directory."""
    _table(config)
    return {name: str(Path(config[name]).absolute()) for name in ("table", "space")}


def checkpoint_bytes(config: dict) -> int:
    """A number, as JSON."""
    return 8


def _fidelity(directory: Path) -> int:
    return json.loads(directory.joinpath(STATE).read_text())


def _table(config: dict) -> Table:
    missing = [name for name in ("table", "space", "metric", "fidelity") if name not in config]
    if missing:
        raise DataUnavailable(f"params.{missing[0]} is missing: --set params.{missing[0]}=…")
    return _read(config["table"], config["space"], config["metric"], config["fidelity"])


@functools.lru_cache(maxsize=1)
def _read(path: str, space: str, metric: str, fidelity: str) -> Table:
    return Table.read(path, space, metric, fidelity)
