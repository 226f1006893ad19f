"""Bundles of code: named by their bytes, and nothing but plain files below one folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tuner.errors import InputError
from tuner.jobs.code_bundle import MAX_BYTES
from tuner.jobs.record import CODE_LIST
from tuner.service import code_store
from tuner.service.code_store import CodeStore, pack
from tuner.service.interface import Submission
from tuner.storage.folder import RunFolder


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    return CodeStore(RunFolder.at(tmp_path / "storage"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(store: CodeStore, data: bytes) -> str:
    store.put(sha256(data), io.BytesIO(data))
    return sha256(data)


def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    """Of members with name, type and data (of a link: where it leads)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(data)
            else:
                info.linkname = data.decode()
            file.addfile(info, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def files_below(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir()}


def test_code_arrives_as_it_was(store: CodeStore, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "lib/a.py").write_bytes(b"x = 1\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    bundle = pack(project, [Path("run.sh"), Path("lib/a.py")])
    os.utime(project / "run.sh", (1, 1))
    assert pack(project, [Path("lib/a.py"), Path("run.sh")]) == bundle
    name = put(store, bundle)
    assert store.has(name)
    target = tmp_path / "target"
    target.mkdir()
    search = Submission("ada", "q", "r", experiment="a: 1\n", code=name)
    assert store.lay_out(search, target) == "experiment.yaml"
    assert files_below(target) == {"lib/a.py", "run.sh", "experiment.yaml", CODE_LIST}
    assert json.loads((target / CODE_LIST).read_text()) == ["lib/a.py", "run.sh", "experiment.yaml"]
    assert os.access(target / "run.sh", os.X_OK)


def test_an_experiment_never_replaces_a_file_of_the_code(store: CodeStore, tmp_path: Path) -> None:
    name = put(store, archive(("experiment.yaml", tarfile.REGTYPE, b"mine")))
    assert store.lay_out(Submission("ada", "q", "r", experiment="a: 1\n", code=name), tmp_path) == "experiment-1.yaml"
    assert (tmp_path / "experiment.yaml").read_bytes() == b"mine"
    name = put(store, archive(("experiment.yaml/x", tarfile.REGTYPE, b"mine")))
    (tmp_path / "other").mkdir()
    submission = Submission("ada", "q", "r", experiment="a: 1\n", code=name)
    assert store.lay_out(submission, tmp_path / "other") == "experiment-1.yaml"


def test_bytes_with_another_sha256_are_refused(store: CodeStore) -> None:
    bundle = archive(("a.py", tarfile.REGTYPE, b"x"))
    with pytest.raises(InputError, match="was it cut off"):
        store.put(sha256(bundle), io.BytesIO(bundle[:-1]))
    assert not store.has(sha256(bundle))


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "/"])
def test_what_is_no_sha256_names_no_file(name: str, store: CodeStore) -> None:
    with pytest.raises(InputError, match="name code by its sha256"):
        store.has(name)
    with pytest.raises(InputError, match="name code by its sha256"):
        store.put(name, io.BytesIO())


@pytest.mark.parametrize(
    "member",
    [
        ("../a.py", tarfile.REGTYPE, b"x"),
        ("/etc/a.py", tarfile.REGTYPE, b"x"),
        ("lib/../../a.py", tarfile.REGTYPE, b"x"),
        ("lib//a.py", tarfile.REGTYPE, b"x"),
        ("link", tarfile.SYMTYPE, b"/etc"),
        ("link", tarfile.LNKTYPE, b"../x"),
        ("pipe", tarfile.FIFOTYPE, b""),
        ("null", tarfile.CHRTYPE, b""),
        ("folder", tarfile.DIRTYPE, b""),
    ],
)
def test_only_plain_files_below_the_root(member: tuple[str, bytes, bytes], store: CodeStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="something else than a plain file below its root"):
        put(store, archive(("ok.py", tarfile.REGTYPE, b"x"), member))
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b", "c", "a/b/c/d")], ids="+".join)
def test_a_name_is_that_of_one_file(names: tuple[str, ...], store: CodeStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"'{names[-1]}' is there twice, or one of its folders is a file"):
        put(store, archive(*((name, tarfile.REGTYPE, b"x") for name in names)))
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("name", ["lib/" + "x" * 256, f"{CODE_LIST}/x"])
def test_a_name_that_could_not_be_laid_out(name: str, store: CodeStore) -> None:
    with pytest.raises(InputError, match=r"between two slashes|is a folder"):
        put(store, archive((name, tarfile.REGTYPE, b"x")))


def test_a_name_that_is_a_million_folders_deep(store: CodeStore) -> None:
    with pytest.raises(InputError, match="is a name of more than 1,024 bytes"):
        put(store, archive(("a/" * 1_000_000 + "b", tarfile.REGTYPE, b"x")))


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", gzip.compress(b"no archive", mtime=0), archive(("a", tarfile.REGTYPE, b"x" * 99))[:-20]],
    ids=["nothing", "text", "zipped text", "cut off"],
)
def test_what_is_no_archive(data: bytes, store: CodeStore) -> None:
    with pytest.raises(InputError, match="no bundle of code"):
        put(store, data)


def test_a_small_file_that_unpacks_to_a_large_one(store: CodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="holds more than 50"):
        put(store, archive(("a", tarfile.REGTYPE, bytes(MAX_BYTES + 1))))
    monkeypatch.setattr(code_store, "_MOST_UNPACKED", 10_000)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 2**40  # an extended header, which is read as a whole
    with pytest.raises(InputError, match="is larger than"):
        put(store, gzip.compress(header.tobuf() + bytes(20_000)))


def test_code_that_was_not_sent(store: CodeStore, tmp_path: Path) -> None:
    assert not store.has("0" * 64)
    with pytest.raises(InputError, match=r"send it first \(PUT /v1/code/0"):
        store.lay_out(Submission("ada", "q", "r", file="a.yaml", code="0" * 64), tmp_path)
