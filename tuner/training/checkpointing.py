"""One-file checkpoints that let an interrupted trial continue exactly where it stopped.

A checkpoint is `DIR/checkpoint.pt`: one dictionary written by `torch.save`, read back with
`weights_only=True` (so a hostile pickle is refused, not executed). Its keys:

    model       state dict of the network (parameters and buffers)
    optimizer   {"class": name, "state": its state dict}
    schedule    state dict of the learning-rate schedule, or None
    scaler      state dict of the gradient scaler, or None (bf16 and fp32 need none)
    epoch       number of finished epochs, 1 after the first
    rng         states of python, numpy, torch CPU, torch CUDA and of every generator passed in
    metrics     what was reported for this epoch: numbers and strings
    others      state dicts of further objects, by name

Hyperparameters (learning rate, momentum, weight decay, ...) are deliberately not restored: they
belong to the configuration. With the same configuration nothing changes; with a perturbed one, as
in population based training, the new values apply to the old weights.
"""

import os
import pickle
import random
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Required, TypedDict, Unpack

import numpy as np
import torch
from torch import nn

FILE_NAME = "checkpoint.pt"


class CheckpointError(RuntimeError):
    """The checkpoint is missing, damaged, or holds more than tensors and plain values."""


class Stateful(Protocol):
    """Anything with PyTorch's pair of state methods: a schedule, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and plain values."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Puts back what `state_dict` gave."""
        ...


class State(TypedDict, total=False):
    """What a checkpoint holds, by the arguments of `save` and `BackgroundSaver.report`.

    Example:
        >>> import torch
        >>> from tuner.training.checkpointing import State
        >>> model = torch.nn.Linear(3, 2)
        >>> state: State = {"model": model, "optimizer": torch.optim.SGD(model.parameters()), "epoch": 1}
    """

    model: Required[nn.Module]
    """The network. Pass the bare model, not its DistributedDataParallel wrapper."""
    optimizer: Required[torch.optim.Optimizer]
    """Its optimizer; the buffers are saved, hyperparameters are not restored."""
    epoch: Required[int]
    """Number of finished epochs, 1 after the first."""
    schedule: Stateful | None
    """The learning-rate schedule."""
    scaler: Stateful | None
    """The gradient scaler."""
    generators: Mapping[str, torch.Generator] | None
    """Random number generators of your own, by name."""
    others: Mapping[str, Stateful] | None
    """Further objects with a state, by name: averaged weights, early stopping."""


def save(
    directory: Path | str,
    *,
    metrics: Mapping[str, float | int | str],
    durable: bool = True,
    **state: Unpack[State],
) -> Path:
    """Writes `directory/checkpoint.pt`.

    The file appears whole or not at all: it is written under a temporary name in the same directory, flushed to the
    disk, then renamed.

    Args:
        directory: The folder of the checkpoint; made if it is missing.
        metrics: What is reported for this epoch: numbers and strings.
        durable: Wait until the file is on the disk. False for a folder that is reported and then removed: what counts
            is the copy that Ray makes of it, which `tuner` flushes.
        **state: `model`, `optimizer` and `epoch`, and what else of `State` there is.

    Returns:
        The path of the file.

    Raises:
        OSError: If the folder cannot be written.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from tuner.training import checkpointing
        >>> model = torch.nn.Linear(3, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = checkpointing.save(folder, model=model, optimizer=optimizer, epoch=1, metrics={"loss": 0.5})
        ...     finished = checkpointing.restore(folder, model=model, optimizer=optimizer)
        >>> path.name, finished
        ('checkpoint.pt', 1)
    """
    return write(directory, content(metrics, **state), durable)


def content(metrics: Mapping[str, float | int | str], **state: Unpack[State]) -> dict[str, Any]:
    """The dictionary that `save` writes. Its tensors are those of the training."""
    schedule, scaler = state.get("schedule"), state.get("scaler")
    optimizer = state["optimizer"]
    return {
        "model": state["model"].state_dict(),
        "optimizer": {"class": type(optimizer).__name__, "state": optimizer.state_dict()},
        "schedule": None if schedule is None else schedule.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "epoch": state["epoch"],
        "rng": rng_state(state.get("generators") or {}),
        "metrics": dict(metrics),
        "others": {name: part.state_dict() for name, part in (state.get("others") or {}).items()},
    }


def write(directory: Path | str, content: dict[str, Any], durable: bool) -> Path:
    """Writes what `content` gave as `save` does."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=f".{FILE_NAME}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(content, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(directory / FILE_NAME)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable:
        _sync_directory(directory)
    return directory / FILE_NAME


def read(directory: Path | str, map_location: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads `directory/checkpoint.pt` and checks it against the checksums stored in it.

    Args:
        directory: The folder of the checkpoint, or the file itself.
        map_location: Where the tensors go, as in `torch.load`.

    Returns:
        The dictionary that `save` wrote; its keys are listed at the top of this module.

    Raises:
        CheckpointError: If the file is missing, cut short or altered, or holds more than tensors and plain values.

    Example:
        >>> from tuner.training import checkpointing
        >>> checkpointing.read("no/such/folder")
        Traceback (most recent call last):
            ...
        tuner.training.checkpointing.CheckpointError: no/such/folder: no such checkpoint
    """
    path = Path(directory)
    path = path / FILE_NAME if path.is_dir() else path
    try:
        # The file is a zip archive with a CRC-32 for each tensor, which torch.load does not check.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise CheckpointError(f"{path}: damaged (checksum of {damaged} is wrong)")
        content = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such checkpoint") from error
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{path}: not a checkpoint, or cut short ({error})") from error
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path}: refused, it holds more than weights: {error}") from error
    if not isinstance(content, dict) or "model" not in content:
        raise CheckpointError(f"{path}: no key 'model' in it; not written by this module")
    return content


def restore(
    source: Path | str | Mapping[str, Any],
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: Stateful | None = None,
    scaler: Stateful | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
    others: Mapping[str, Stateful] | None = None,
) -> int:
    """Puts everything that `save` recorded back in place.

    Args:
        source: The folder of the checkpoint, or what `read` returned for it.
        model: A network of the same shape.
        optimizer: Its optimizer. The state of an optimizer of another class is left out.
        schedule: The learning-rate schedule, if any.
        scaler: The gradient scaler, if any.
        generators: Random number generators of your own, by the names that `save` got.
        others: Further objects with a state, by the names that `save` got. One that `save` did not get stays as it is.

    Returns:
        The number of finished epochs: the next one is one more.

    Raises:
        CheckpointError: As in `read`.
        RuntimeError: From torch, if the checkpoint is of a network of another shape.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from tuner.training import checkpointing
        >>> def parts():
        ...     model = torch.nn.Linear(3, 2)
        ...     return {"model": model, "optimizer": torch.optim.Adam(model.parameters())}
        >>> before, after = parts(), parts()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = checkpointing.save(folder, epoch=4, metrics={}, **before)
        ...     checkpointing.restore(folder, **after)
        4
        >>> bool((after["model"].weight == before["model"].weight).all())
        True
    """
    # Read to the CPU: generator states must live there, and load_state_dict moves the rest.
    content = source if isinstance(source, Mapping) else read(source)
    model.load_state_dict(content["model"])
    saved = content["optimizer"]
    if saved["class"] == type(optimizer).__name__:
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": saved["state"]["state"], "param_groups": groups})
    for name, part in (("schedule", schedule), ("scaler", scaler)):
        if part is not None and content[name] is not None:
            part.load_state_dict(content[name])
    for name, part in (others or {}).items():
        if (state := content.get("others", {}).get(name)) is not None:
            part.load_state_dict(state)
    set_rng_state(content["rng"], generators or {})
    return int(content["epoch"])


def rng_state(generators: Mapping[str, torch.Generator]) -> dict[str, Any]:
    """States of all random number generators, as tensors and plain values only.

    Args:
        generators: Random number generators of your own, by name.

    Returns:
        The states of python, numpy, torch on the CPU and on all GPUs, and of `generators`.

    Example:
        >>> import random
        >>> from tuner.training.checkpointing import rng_state, set_rng_state
        >>> state = rng_state({})
        >>> first = random.random()
        >>> set_rng_state(state, {})
        >>> random.random() == first
        True
    """
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "kind": str(kind),
            "keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
            "rest": [int(position), int(has_gauss), float(cached)],
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        "generators": {name: generator.get_state() for name, generator in generators.items()},
    }


def set_rng_state(state: Mapping[str, Any], generators: Mapping[str, torch.Generator]) -> None:
    """Undoes what was drawn since `rng_state`.

    CUDA states are set only if as many GPUs are visible as when they were saved; otherwise a resumed trial is a valid
    continuation but not an identical one.

    Args:
        state: What `rng_state` returned.
        generators: Random number generators of your own, by the same names.
    """
    python, numpy_ = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    position, has_gauss, cached = numpy_["rest"]
    keys = numpy_["keys"].numpy().astype(np.uint32)
    np.random.set_state((numpy_["kind"], keys, position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    for name, generator in generators.items():
        generator.set_state(state["generators"][name])


def size_in_bytes(model: nn.Module, optimizer: str) -> int:
    """Estimates the size of one checkpoint.

    Args:
        model: The network; it may live on the meta device, so that no memory is allocated.
        optimizer: "sgd" (one momentum buffer a parameter), "adam" or "adamw" (two).

    Returns:
        The size in bytes.

    Example:
        >>> import torch
        >>> from tuner.training.checkpointing import size_in_bytes
        >>> with torch.device("meta"):
        ...     model = torch.nn.Linear(1000, 1000)
        >>> size_in_bytes(model, "adam") // 1_000_000
        12
    """
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    slots = 1 if optimizer == "sgd" else 2
    # About 17 KB of generator states, and under 1.5 KB of zip records for each tensor and slot.
    tensors = len(list(model.parameters())) * (1 + slots) + len(list(model.buffers()))
    return parameters * (1 + slots) + buffers + 20_000 + 600 * tensors


def _sync_directory(directory: Path) -> None:
    """Make a rename in `directory` survive a power cut (POSIX; elsewhere there is no such call)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
