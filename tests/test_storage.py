"""Run folders in an object store: an S3 server of moto's, on this machine's loopback."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tuner.results import how_to_resume
from tuner.storage import RunFolder


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
    assert run.shown == bucket.replace("runs", "runs/q")
    assert RunFolder.at(run.shown).read("a") == b"1"  # as a process does that is told of the run
    assert run.parent.shown == bucket
    assert RunFolder.at(run.parent.shown).folders() == ["q"]
    assert how_to_resume(run) == f"python -m tuner resume '{run.shown}'"


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


def test_a_question_mark_in_a_local_name_is_a_part_of_it() -> None:
    assert (RunFolder.at("/tmp/what?") / "q").shown == "/tmp/what?/q"
