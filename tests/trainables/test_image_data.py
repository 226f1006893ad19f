"""Where image data comes from, what happens when it does not, and how it is shared."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, utils

from trainables import cifar, image_data, shapes10
from trainables.image_data import DataFallbackWarning, DataUnavailable, WrongChecksum

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(utils, "_get_redirect_url", refuse)


@pytest.fixture(autouse=True)
def quick_shapes(shapes: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator's result without its 1.5 seconds."""
    monkeypatch.setattr(shapes10, "generate", lambda: shapes)


@pytest.fixture
def tiny_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a CIFAR-10 archive of 6 images whose checksums torchvision accepts."""
    batches = tmp_path / "source" / CIFAR10.base_folder
    batches.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def written(name: str, content: dict[str, Any]) -> list[str]:
        (batches / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((batches / name).read_bytes()).hexdigest()]

    names = [name for name, _ in CIFAR10.train_list + CIFAR10.test_list]
    files = [
        written(name, {"data": rng.integers(0, 256, (1, 3072), dtype=np.uint8), "labels": [i]})
        for i, name in enumerate(names)
    ]
    files[-1] = written(names[-1], {"data": np.zeros((1, 3072), np.uint8), "labels": [0]})
    meta = written(CIFAR10.meta["filename"], {"label_names": list("abcdefghij")})
    root = tmp_path / "data"
    root.mkdir()
    with tarfile.open(root / CIFAR10.filename, "w:gz") as archive:
        archive.add(batches, CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "train_list", files[:-1])
    monkeypatch.setattr(CIFAR10, "test_list", files[-1:])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": meta[1]})
    md5 = hashlib.md5((root / CIFAR10.filename).read_bytes()).hexdigest()
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5)
    return root


# ------------------------------------------------------------------------------------- CIFAR-10


@pytest.mark.usefixtures("offline")
def test_an_archive_on_disk_is_unpacked_once(tiny_cifar: Path) -> None:
    images = image_data.load("cifar10", str(tiny_cifar))
    assert images.x_train.shape == (5, 32, 32, 3)
    assert images.y_train.tolist() == [0, 1, 2, 3, 4]
    # The decoded cache is all that later trials need.
    (tiny_cifar / CIFAR10.filename).unlink()
    (tiny_cifar / CIFAR10.base_folder / "data_batch_1").unlink()
    assert image_data.load("cifar10", str(tiny_cifar)).y_test.tolist() == [0]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("unpacked", [False, True])
def test_a_wrong_checksum_is_reported_and_never_hidden(tiny_cifar: Path, unpacked: bool) -> None:
    path = tiny_cifar / CIFAR10.filename
    expected = CIFAR10.tgz_md5
    if unpacked:
        with tarfile.open(path) as archive:
            archive.extractall(tiny_cifar, filter="data")
        path = tiny_cifar / CIFAR10.base_folder / "data_batch_3"
        expected = CIFAR10.train_list[2][1]
    path.write_bytes(b"cut short")
    got = hashlib.md5(b"cut short").hexdigest()
    config = cifar.Config(data_dir=str(tiny_cifar), offline_dataset="shapes10")
    with pytest.raises(WrongChecksum) as caught:
        cifar.prepare(config)
    assert all(text in str(caught.value) for text in (str(path), expected, got))


@pytest.mark.usefixtures("offline")
def test_without_data_the_error_says_why_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match="no route to host") as caught:
        cifar.prepare(cifar.Config(data_dir=str(tmp_path)))
    assert f"in {tmp_path}" in str(caught.value)
    assert "cifar-10-python.tar.gz" in str(caught.value)
    assert all(name.endswith(".lock") for name in os.listdir(tmp_path))


def test_a_download_with_a_wrong_checksum_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "_get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr(utils, "_urlretrieve", lambda url, path, **_: Path(path).write_bytes(b"please log in"))
    with pytest.raises(DataUnavailable) as caught:
        image_data.load("cifar10", str(tmp_path))
    got = hashlib.md5(b"please log in").hexdigest()
    assert f"expected MD5 {CIFAR10.tgz_md5}, got {got}" in str(caught.value)
    assert not (tmp_path / CIFAR10.filename).exists()


@pytest.mark.usefixtures("offline")
def test_the_fallback_is_told_loudly(tmp_path: Path) -> None:
    config = cifar.Config(data_dir=str(tmp_path), offline_dataset="shapes10")
    with pytest.warns(DataFallbackWarning) as told:
        assert cifar.prepare(config) == {"dataset": "shapes10"}
    text = str(told[0].message)
    for part in ("'shapes10' INSTEAD OF 'cifar10'", "no route to host", str(tmp_path)):
        assert part in text


@pytest.mark.usefixtures("offline")
def test_a_trial_itself_never_falls_back(tmp_path: Path) -> None:
    config = cifar.Config(data_dir=str(tmp_path), offline_dataset="shapes10")
    with pytest.raises(DataUnavailable):
        cifar.train(config)


# ----------------------------------------------------------------------------------- npz, names


def test_npz_is_found_from_any_working_directory(
    small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_npz.parent)
    replaced = image_data.prepare("npz:small.npz", data_dir="data")
    expected = {"dataset": f"npz:{small_npz}", "data_dir": str(small_npz.parent / "data")}
    assert replaced == expected
    monkeypatch.chdir(tmp_path)
    images = image_data.load(expected["dataset"], expected["data_dir"])
    with np.load(small_npz) as file:
        assert np.array_equal(images.x_train, file["x_train"])
        assert np.array_equal(images.y_test, file["y_test"])


X, Y = np.zeros((4, 32, 32, 3), np.uint8), np.arange(4)
GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, "no array y_test"),
        ({"x_train": X.astype(np.float32)}, "x_train is float32"),
        ({"x_test": X.transpose(0, 3, 1, 2)}, r"x_test is uint8 \(4, 3, 32, 32\)"),
        ({"y_train": Y[:3]}, r"y_train is int64 \(3,\)"),
        ({"y_train": Y.astype(float)}, "y_train is float64"),
        ({"y_train": Y - 1}, "negative label"),
        ({"y_test": Y + 1}, "y_test has label 4"),
        ({"y_train": np.array([None] * 4)}, "cannot be read"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "y_test is empty"),
    ],
)
def test_a_bad_npz_is_explained(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataUnavailable, match=message):
        cifar.prepare(cifar.Config(dataset=f"npz:{tmp_path}/bad.npz", data_dir=str(tmp_path)))


def test_a_file_that_is_no_npz_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    with pytest.raises(DataUnavailable, match=r"bad\.npz \(No such file"):
        image_data.load(f"npz:{path}", str(tmp_path))
    path.write_text("not an archive")
    with pytest.raises(DataUnavailable, match="cannot be read"):
        image_data.load(f"npz:{path}", str(tmp_path))


@pytest.mark.parametrize("name", ["cifar100", "npz:", ""])
def test_an_unknown_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="allowed: cifar10, shapes10, npz:PATH"):
        image_data.load(name, str(tmp_path))


def test_the_folder_is_data_dir_or_the_variable_or_the_users_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNER_DATA", "/somewhere")
    assert image_data.data_folder("/here") == Path("/here")
    assert image_data.data_folder() == Path("/somewhere")
    monkeypatch.delenv("TUNER_DATA")
    assert image_data.data_folder() == Path.home() / ".cache" / "tuner"


# ------------------------------------------------------------------------------------ the cache


@pytest.mark.parametrize("damage", ["byte", "cut", "gone", "manifest"])
def test_a_damaged_cache_is_built_again(small_npz: Path, tmp_path: Path, damage: str) -> None:
    name = f"npz:{small_npz}"
    expected = image_data.load(name, str(tmp_path)).x_train.copy()
    folder = next(p for p in tmp_path.iterdir() if p.is_dir())
    path = folder / "x_train.npy"
    content = bytearray(path.read_bytes())
    if damage == "byte":
        content[5000] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:5000])
    elif damage == "gone":
        path.unlink()
    else:
        (folder / "manifest.json").write_text(json.dumps({"crc32": None}))
    with pytest.warns(UserWarning, match="building it again"):
        images = image_data.load(name, str(tmp_path))
    assert np.array_equal(images.x_train, expected)


def test_an_interrupted_build_is_never_used(small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(DataUnavailable, match="No space left"):
            image_data.load(f"npz:{small_npz}", str(tmp_path))
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(image_data.load(f"npz:{small_npz}", str(tmp_path)).x_train) == 240


def test_writing_to_an_array_does_not_reach_the_cache(small_npz: Path, tmp_path: Path) -> None:
    first = image_data.load(f"npz:{small_npz}", str(tmp_path))
    first.x_train[:] = 0
    assert image_data.load(f"npz:{small_npz}", str(tmp_path)).x_train.any()


READER = """
import sys
from trainables import image_data
images = image_data.load("shapes10", sys.argv[1])
total = int(images.x_train.sum())  # touches every page
print("ready", flush=True)
sys.stdin.readline()
sizes, inside = {}, False
for line in open("/proc/self/smaps"):
    name, *rest = line.split()
    if "-" in name and not name.endswith(":"):
        inside = line.rstrip().endswith("x_train.npy")
    elif inside and rest[-1:] == ["kB"]:
        sizes[name[:-1]] = sizes.get(name[:-1], 0) + int(rest[0])
print(sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"], flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's memory accounts")
def test_processes_of_a_node_hold_one_copy_between_them(tmp_path: Path) -> None:
    """Rss counts all pages in use, Pss divides shared ones among their users, private is USS."""
    image_data.load("shapes10", str(tmp_path))
    command = [sys.executable, "-c", READER, str(tmp_path)]
    processes = 3
    readers = [
        subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        data_kib = 10_000 * 32 * 32 * 3 / 1024
        for reader in readers:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write("measure\n")
            reader.stdin.flush()
            rss, pss, private = map(int, reader.stdout.readline().split())
            assert rss == pytest.approx(data_kib, rel=0.01)
            assert pss == pytest.approx(data_kib / processes, rel=0.01)
            assert private < 0.01 * data_kib
    finally:
        for reader in readers:
            reader.communicate("end\n", timeout=20)
