"""CIFAR-10 as torchvision downloads it: found on disk or fetched once, and checked (MD5)."""

import hashlib
import http.client
import socket
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tuner.training.data_errors import DataUnavailable, WrongChecksum
from tuner.training.fetching import fetched

STALL_S = 20.0  # seconds without a byte after which the server counts as unreachable


def read(root: Path) -> dict[str, np.ndarray]:
    """Arrays x_train, y_train, x_test, y_test (uint8 N x 32 x 32 x 3, int64 N) of CIFAR-10.

    Uses `root/cifar-10-batches-py`, or unpacks `root/cifar-10-python.tar.gz`, or downloads it.
    Raises `WrongChecksum` where a file on disk is not the published one, and `DataUnavailable`
    where nothing is on disk and the download fails.
    """
    try:
        from torchvision.datasets import CIFAR10
    except ImportError as error:
        raise DataUnavailable(
            f"CIFAR-10 needs the package torchvision ({error}); install it, or use npz:PATH"
        ) from error

    batches, archive = root / CIFAR10.base_folder, root / CIFAR10.filename
    if batches.is_dir():
        _check_batches(batches, CIFAR10)
    else:
        given = archive if archive.exists() else None
        if given and (got := _md5(given)) != CIFAR10.tgz_md5:
            raise WrongChecksum(_wrong(given, CIFAR10.tgz_md5, got))
        fetched(batches, lambda folder: _download(folder, CIFAR10, given))
    train, test = CIFAR10(root=str(root), train=True), CIFAR10(root=str(root), train=False)
    return {
        "x_train": train.data,
        "y_train": np.asarray(train.targets, dtype=np.int64),
        "x_test": test.data,
        "y_test": np.asarray(test.targets, dtype=np.int64),
    }


def _check_batches(batches: Path, cifar10: Any) -> None:
    meta = (cifar10.meta["filename"], cifar10.meta["md5"])
    for name, expected in [*cifar10.train_list, *cifar10.test_list, meta]:
        path = batches / name
        if not path.exists():
            raise WrongChecksum(f"{path} is missing; {_remedy(batches.parent)}")
        got = _md5(path)
        if got != expected:
            raise WrongChecksum(_wrong(path, expected, got))


def _download(folder: Path, cifar10: Any, archive: Path | None) -> None:
    """Download (or take `archive`), and unpack so that `folder` holds the batches."""
    before, root = socket.getdefaulttimeout(), folder.parent
    with tempfile.TemporaryDirectory(dir=folder) as name:
        temporary = Path(name)
        if archive is not None:
            (temporary / archive.name).symlink_to(archive)
        try:
            # torchvision sets no timeout: behind a silent firewall it would wait for ever.
            socket.setdefaulttimeout(STALL_S)
            cifar10(root=name, download=True)
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            # torchvision reports a wrong checksum as a RuntimeError without the checksum.
            reason = f"{type(error).__name__}: {error}"
            got = temporary / cifar10.filename
            if isinstance(error, RuntimeError) and got.exists():
                reason = _wrong(got, cifar10.tgz_md5, _md5(got), advice=False)
            reason = " ".join(reason.split())
            raise DataUnavailable(
                f"CIFAR-10 is not in {root} and could not be downloaded from {cifar10.url} ({reason}); {_remedy(root)}"
            ) from error
        finally:
            socket.setdefaulttimeout(before)
        for file in (temporary / cifar10.base_folder).iterdir():
            file.rename(folder / file.name)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _wrong(path: Path, expected: str, got: str, advice: bool = True) -> str:
    text = f"{path} has the wrong checksum: expected MD5 {expected}, got {got}"
    return f"{text}; {_remedy(path.parent)}" if advice else text


def _remedy(root: Path) -> str:
    root = root.parent if root.name == "cifar-10-batches-py" else root
    return (
        "put cifar-10-python.tar.gz, or the folder cifar-10-batches-py unpacked from it, "
        f"in {root} (removing what is damaged there), or set data_dir or $TUNER_DATA to where it is"
    )
