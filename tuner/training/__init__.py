"""Helpers for the code inside a trial; they work with plain Ray Tune as well as under tuner.

- `tuner.training.checkpointing`: one-file checkpoints from which an interrupted trial continues exactly
- `tuner.training.distributed`: one model trained in several processes
- `tuner.training.device`: the fastest device and number format of this machine
- `tuner.training.precision`: fp32, tf32, bf16 and fp16 behind one class
- `tuner.training.trial_cpus`: the CPUs that a trial may use
- `tuner.training.stacked`: several models of one shape that train as one
- `tuner.training.accumulation`: a batch in parts that fit into the memory
- `tuner.training.loading`: a DataLoader that finds its number of workers, and whose batches do not depend on it
- `tuner.training.sampling`, `tuner.training.metrics`: for classes that are not equally frequent
- `tuner.training.schedules`: learning-rate schedules with one signature
- `tuner.training.regularization`: decay, L1 and L2, clipping, averaged weights, mixup and cutmix
- `tuner.training.transfer`: frozen parts of a network, and learning rates by layer
- `tuner.training.backbones`: networks of torchvision and timm, with pretrained weights or without
- `tuner.training.hub`: the Hugging Face hub, and machines that do not reach it
- `tuner.training.early_stop`: a trial that ends itself on a plateau
- `tuner.training.reporting`: `tuner.report` and `tuner.get_checkpoint`
- `tuner.training.fetching`: data that all trials of a node download once
- `tuner.training.data_errors`: what code that loads data raises and warns

`keep`, from `tuner.training` itself, makes a value once in a process, for all its trials.

Each module imports only what it needs, and nothing of the rest of tuner. `reporting`, `fetching`, `data_errors`,
`accumulation`, `hub` and `early_stop` do not import torch.
"""

from tuner.training.keeping import keep

__all__ = ["keep"]
