"""Helpers for the code inside a trial; they work with plain Ray Tune as well as under tuner.

- `tuner.training.checkpointing`: one-file checkpoints from which an interrupted trial continues exactly
- `tuner.training.distributed`: one model trained in several processes
- `tuner.training.device`: the fastest device and number format of this machine
- `tuner.training.fetching`: data that all trials of a node download once
- `tuner.training.data_errors`: what code that loads data raises and warns

Each module imports only what it needs (`fetching` and `data_errors` do not import torch), and nothing of the rest of
tuner.
"""
