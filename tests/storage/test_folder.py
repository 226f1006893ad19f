"""What is written where: in folders of this machine, and in an object store (moto's S3 server, on loopback)."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, FileSystem

from tests.tracking.made_up import made_up_run, made_up_trial
from tuner.actions.run import _write_page
from tuner.cli import cli
from tuner.display.terminal import TerminalCapture
from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import EXPERIMENT, LOG, PROVENANCE, REPORT, ResultSet, how_to_resume, write_json
from tuner.spec.document import dump_yaml
from tuner.storage.folder import RunFolder, open_own, write_file
from tuner.storage.lock import holder, locked


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where it is, as a user writes it: with the address of a server that is not Amazon's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for method, path in (("POST", "moto-api/reset"), ("PUT", "bucket")):  # all servers of a process have one content
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{path}", method=method)).close()
    yield f"s3://bucket/runs?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    server.stop()


def test_what_follows_a_uri_holds_for_all_below_it(bucket: str) -> None:
    run = RunFolder.at(bucket) / "q"
    run.create()
    run.write("a", b"1")
    assert run.location == bucket.replace("runs", "runs/q")
    assert RunFolder.at(run.location).read("a") == b"1"  # as a process does that is told of the run
    assert run.parent.location == bucket
    assert RunFolder.at(run.parent.location).folders() == ["q"]
    assert how_to_resume(run) == f"python -m tuner resume '{run.location}'"


def test_a_folder_takes_the_place_of_another(bucket: str) -> None:
    folder = RunFolder.at(bucket)
    for name in ("old", "new"):
        (folder / name / "checkpoint").create()
        (folder / name).write("config.json", name.encode())
        (folder / name).write(f"checkpoint/{name}", b"")
    folder.rename("new", "old")
    assert folder.folders() == ["old"]
    assert (folder / "old").read("config.json") == b"new"
    assert (folder / "old").exists("checkpoint/new")
    assert not (folder / "old").exists("checkpoint/old")


def test_a_lock_of_one_process_at_a_time(bucket: str) -> None:
    folder = RunFolder.at(bucket)
    for _ in range(2):
        with locked(folder) as lock:
            lock.check()
            assert holder(folder) is not None
            with pytest.raises(InputError, match="works on this run"), locked(folder):
                pass
            lock.check()  # the attempt changed nothing
        assert holder(folder) is None


def test_a_question_mark_in_a_local_name_is_a_part_of_it() -> None:
    assert (RunFolder.at("/tmp/what?") / "q").location == "/tmp/what?/q"


# Object stores: a file is there when its upload is completed


def test_a_file_is_uploaded_under_its_own_name(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: set[tuple[str, str]] = set()
    served = DomainDispatcherApplication.__call__

    def counted(self: Any, environ: dict[str, Any], start: Any) -> Any:
        requests.add((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return served(self, environ, start)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", counted)
    RunFolder.at(bucket).write("a", b"1")
    assert {path for _, path in requests} == {"/bucket/runs/a"}
    assert "DELETE" not in {method for method, _ in requests}


def test_a_writer_that_is_killed_leaves_the_old_object_alone(bucket: str) -> None:
    folder = RunFolder.at(bucket)
    folder.write("a", b"old")
    code = f"""if True:
        import os
        from tuner.storage.folder import RunFolder
        folder = RunFolder.at({bucket!r})
        stream = folder.filesystem.open_output_stream((folder / "a").path, compression=None)
        stream.write(bytes(12 * 2**20))  # more than the first part of an upload
        os.kill(os.getpid(), 9)"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert folder.read("a") == b"old"
    infos = folder.filesystem.get_file_info(FileSelector(folder.path, recursive=True))
    assert [info.base_name for info in infos] == ["a"]


class InterruptedAtOpening:
    """The file system of a bucket; Ctrl-C comes while it opens a file."""

    type_name = "s3"

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def open_output_stream(self, path: str, **options: Any) -> Any:
        stream = self._filesystem.open_output_stream(path, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return stream


def test_ctrl_c_leaves_no_empty_object(bucket: str) -> None:
    folder = RunFolder.at(bucket)
    folder.write("a", b"old")
    interrupted: Any = InterruptedAtOpening(folder.filesystem)
    with pytest.raises(KeyboardInterrupt):
        dataclasses.replace(folder, filesystem=interrupted).write("a", b"new")
    assert folder.read("a") == b"new"


# Folders of this machine


@pytest.fixture
def run(tmp_path: Path) -> ResultSet:
    """Of two trials, as `report` reads it."""
    results = made_up_run(tmp_path, interrupted=False, notices=[])
    for accuracies in ((0.1, 0.2), (0.3, 0.9)):
        made_up_trial(results, *accuracies, status="completed")
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance)
    results.save()
    return results


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("precious")
    return file


def test_a_link_in_the_place_of_a_file_is_replaced_and_one_beside_it_left_alone(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "r").mkdir()
    for name in ("x", ".x.new"):
        (tmp_path / "r" / name).symlink_to(precious)
    RunFolder.at(tmp_path / "r").write("x", b"1")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "r/x").is_symlink()
    assert (tmp_path / "r/x").read_bytes() == b"1"


def test_who_may_read_a_file_is_for_the_umask_to_say(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        RunFolder.at(tmp_path).write("open", b"")
        RunFolder.at(tmp_path).write("closed", b"", private=True)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("open", "closed")] == [0o640, 0o600]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="directory"):
        RunFolder.at(tmp_path).write("x", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_writers_of_one_file_are_not_in_each_others_way(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    contents = [bytes([letter]) * 50_000 for letter in b"ab"]

    def write(content: bytes) -> None:
        try:
            for _ in range(100):
                RunFolder.at(tmp_path).write("x", content)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() in contents


def lies(file: Path, precious: Path) -> None:
    file.symlink_to(precious)


def waits(file: Path, precious: Path) -> None:
    os.mkfifo(file)


@pytest.mark.parametrize("place", [lies, waits])
def test_a_log_goes_to_a_file_of_the_run_and_nowhere_else(
    run: ResultSet, precious: Path, place: Callable[[Path, Path], None]
) -> None:
    place(run.folder.local_path / LOG, precious)
    with TerminalCapture() as screen, pytest.raises(EnvironmentFailure, match=r"run\.log: a link or no regular file"):
        screen.take(run)
    assert precious.read_text() == "precious"


def test_a_file_of_the_run_is_opened_as_it_is_asked_for(tmp_path: Path) -> None:
    file = open_own(tmp_path / "x", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"1")
    os.close(file)
    assert (tmp_path / "x").read_bytes() == b"1"
    with pytest.raises(FileNotFoundError):
        open_own(tmp_path / "y", os.O_RDONLY)


def test_a_page_that_cannot_be_written_does_not_end_a_search(run: ResultSet) -> None:
    (run.folder.local_path / REPORT).mkdir()
    said: list[str] = []
    _write_page(run, said.append)
    assert said[0].startswith("NOTICE: its page is not written: ")
    assert said[0].endswith(f"python -m tuner report {run.folder.quoted}")


# What -o names


def report(run: ResultSet, *words: str) -> str:
    return CliRunner().invoke(cli, ["report", str(run.folder.local_path), *words], catch_exceptions=False).stdout


def test_the_page_of_a_run_follows_no_link(run: ResultSet, precious: Path) -> None:
    for name in (REPORT, f".{REPORT}.new"):
        (run.folder.local_path / name).symlink_to(precious)
    assert report(run).strip().endswith(REPORT)
    assert precious.read_text() == "precious"
    assert b"</html>" in run.folder.read(REPORT)


def test_a_link_that_the_user_names_is_followed(run: ResultSet, tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to(tmp_path / "target.html")
    report(run, "-o", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").is_symlink()
    assert "</html>" in (tmp_path / "target.html").read_text()


def test_a_pipe_or_a_device_that_the_user_names_stays_one(run: ResultSet, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    report(run, "-o", str(tmp_path / "pipe"))
    reader.join(60)
    assert b"</html>" in read[0]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    write_file("/dev/null", b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OSError, match="No space left"):
        write_file("/dev/full", b"x")


def test_a_table_obeys_the_same_rule(run: ResultSet, tmp_path: Path, precious: Path) -> None:
    made = CliRunner().invoke(cli, ["table", str(run.folder.local_path), "-o", str(tmp_path / "new/t.parquet")])
    assert isinstance(made.exception, EnvironmentFailure)
    assert not (tmp_path / "new").exists()
    (tmp_path / "t.parquet").symlink_to(tmp_path / "target.parquet")
    assert (
        CliRunner().invoke(cli, ["table", str(run.folder.local_path), "-o", str(tmp_path / "t.parquet")]).exit_code == 0
    )
    assert (tmp_path / "target.parquet").read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize("local", [True, False])
def test_folders_of_folders_are_listed_at_once(tmp_path: Path, bucket: str, local: bool) -> None:
    folder = RunFolder.at(tmp_path / "ray" if local else bucket.replace("?", "/ray?"))
    assert folder.subfolders() == {}
    for name in ("a/checkpoint_1/model/weights", "a/checkpoint_2/weights", "a/output.log", "b/output.log", "state"):
        (folder / name).parent.filesystem.create_dir((folder / name).parent.path, recursive=True)
        folder.write(name, b"x")
    assert folder.subfolders() == {"a": ["checkpoint_1", "checkpoint_2"]}
