"""A project of Hydra, of which a trial may be killed as it reports."""

from __future__ import annotations

from pathlib import Path

CONFIG = """
defaults:
  - optimizer: sgd
  - _self_
epochs: 4
killed: false
marks: ???
"""

TRAIN = """
import json
import os
import signal
import tempfile
from pathlib import Path

import hydra
import tuner
from omegaconf import OmegaConf

OmegaConf.register_new_resolver("square", lambda x: x * x)


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    begun = tuner.get_checkpoint()
    state = json.loads((begun / "state.json").read_text()) if begun else {"epoch": 0, "x": 1.0}
    mark = Path(cfg.marks, "killed")
    for epoch in range(state["epoch"] + 1, cfg.epochs + 1):
        if cfg.killed and epoch == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state = {"epoch": epoch, "x": state["x"] * (1 - cfg.optimizer.lr)}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            loss = state["x"] ** 2 + cfg.optimizer.get("penalty", 0)
            tuner.report(epoch=epoch, loss=loss, checkpoint=folder)
    return state["x"]


def evaluate(cfg, checkpoint):
    return {"test_loss": json.loads((checkpoint / "state.json").read_text())["x"] + cfg.optimizer.lr}


if __name__ == "__main__":
    main()
"""


def write_project(folder: Path) -> None:
    """Writes train.py and its configurations."""
    (folder / "conf" / "optimizer").mkdir(parents=True)
    (folder / "conf" / "config.yaml").write_text(CONFIG)
    (folder / "conf" / "optimizer" / "sgd.yaml").write_text("lr: 0.1\npenalty: 0.5\n")
    (folder / "conf" / "optimizer" / "adam.yaml").write_text("lr: 0.2\n")
    (folder / "train.py").write_text(TRAIN)
