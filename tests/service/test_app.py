"""The service over HTTP: what its routes answer, to whom."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from tests.live.journals import Journal
from tests.live.servers import WITHIN_S
from tests.service.http import EXPERIMENT, Service
from tests.service.test_code_store import archive, files_below
from tuner.errors import InputError
from tuner.live.figures import FollowedRuns
from tuner.runs.loading import run_exists
from tuner.service import api
from tuner.service.check import Checked
from tuner.service.files import unpack
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


@pytest.fixture
def ada(service: Service) -> TestClient:
    return service.client("ada")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts of experiments that were checked: without processes, and each takes 8 GPUs."""
    seen: list[str] = []

    def check(project: Path, file: str, overrides: list[str], has_gpus: bool, mlflow: str | None) -> Checked:
        text = (project / file).read_text() if (project / file).exists() else file
        seen.append(text)
        if "wrong" in text:
            raise InputError("it is wrong")
        return Checked("exp", {"GPU": 8.0}, 9, ("b=2",))

    monkeypatch.setattr(api, "check", check)
    return seen


def test_who_asks(service: Service, ada: TestClient) -> None:
    assert ada.get("/v1/me").json() == {"user": "ada", "admin": False, "expires": None}
    assert service.client("root").get("/v1/me").json()["admin"]


def test_a_search_is_queued_with_what_its_check_found(service: Service, ada: TestClient, checked: list[str]) -> None:
    sent = ada.post("/v1/searches", json={"experiment": EXPERIMENT, "name": "q", "set": ["a=1"], "priority": 3})
    assert sent.status_code == 201
    assert (sent.json()["name"], sent.json()["user"], sent.json()["state"]) == ("q", "ada", "queued")
    kept = service.queue.entry("q").submission
    assert (kept.experiment, kept.overrides, kept.priority) == (EXPERIMENT, ("a=1", "b=2"), 3)
    assert (kept.per_trial, kept.trials) == ({"GPU": 8.0}, 9)
    assert checked == [EXPERIMENT]


def test_a_mapping_is_the_same_as_a_text(service: Service, ada: TestClient, checked: list[str]) -> None:
    assert ada.post("/v1/searches", json={"experiment": {"trainable": "t.py:train", "on": "1e-4"}}).is_success
    (text,) = checked
    assert yaml.safe_load(text) == {"trainable": "t.py:train", "on": "1e-4"}
    (entry,) = service.queue.entries()
    assert entry.name.startswith("exp-2")


def test_the_same_request_is_queued_once(service: Service, ada: TestClient, checked: list[str]) -> None:
    asked = {"experiment": EXPERIMENT, "request": "r1"}
    names = {ada.post("/v1/searches", json=asked).json()["name"] for _ in range(3)}
    assert len(names) == len(service.queue.entries()) == len(checked) == 1
    service.client("bob").post("/v1/searches", json={"file": "quickstart", "request": "r1"})
    ada.post("/v1/searches", json=asked | {"request": "r2"})
    found = {(entry.user, entry.request) for entry in service.queue.entries()}
    assert found == {("ada", "r1"), ("ada", "r2")}, "bob's takes more GPUs than he may have"


def test_searches_without_names_that_come_in_one_second_have_two(
    service: Service, ada: TestClient, checked: list[str]
) -> None:
    for _ in range(3):
        assert ada.post("/v1/searches", json={"experiment": EXPERIMENT}).status_code == 201
    assert len({entry.name for entry in service.queue.entries()}) == 3


def test_a_name_is_given_once(service: Service, ada: TestClient, checked: list[str], tmp_path: Path) -> None:
    (tmp_path / "old-run").mkdir()
    service.search("q", user="bob")
    for name in ("q", "old-run"):
        refused = ada.post("/v1/searches", json={"experiment": EXPERIMENT, "name": name})
        assert refused.status_code == 409
        assert "is taken" in refused.json()["error"]["message"]


def test_a_quota_that_can_never_be_met(service: Service, checked: list[str]) -> None:
    refused = service.client("bob").post("/v1/searches", json={"experiment": EXPERIMENT})
    assert (refused.status_code, service.queue.entries()) == (422, [])
    assert refused.json()["error"] == {
        "message": "a trial takes more GPUs than bob may use at once",
        "exit_status": 2,
        "problems": [
            {"file": None, "line": None, "column": None, "key": None, "message": refused.json()["error"]["message"]}
        ],
    }


def test_an_invalid_experiment_has_the_problems_of_validate(service: Service, ada: TestClient) -> None:
    wrong = EXPERIMENT + "budgett: {trials: 3}\nbudget: {trials: many}\n"
    refused = ada.post("/v1/searches", json={"experiment": wrong})
    error = refused.json()["error"]
    assert (refused.status_code, error["exit_status"]) == (422, 2)
    places = [(problem["file"], problem["line"], problem["key"]) for problem in error["problems"]]
    assert places == [("experiment.yaml", 4, "budgett"), ("experiment.yaml", 5, "budget.trials")]
    assert "did you mean 'budget'?" in error["message"]
    assert not service.queue.entries()


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 0


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "give `experiment`"),
        ({"experiment": "a", "file": "b"}, "and not both"),
        ({"experiment": 3}, "the body of the request: experiment"),
        ({"experiment": "a", "nmae": "x"}, "nmae"),
        ({"experiment": "a", "name": "../x"}, "cannot name a folder"),
        ({"experiment": "a", "priority": 10**9}, "priority"),
        ({"experiment": "a", "code": "../x"}, "name code by its sha256"),
        ({"experiment": "a", "code": "0" * 64}, "send it first"),
        ({"file": "/etc/passwd"}, "by its path below the root"),
        ([], "the body of the request"),
        ({"experiment": "a: \ud800"}, ": is not text in UTF-8"),
        ({"experiment": "a: \0"}, "holds the character NUL"),
        ({"experiment": "a", "set": ["\ud800=1"]}, "set.0: "),
        ({"file": "\ud800"}, "file: "),
        ({"experiment": "a", "set": ["x" * 20_000]}, "at most 10000 characters"),
        ({"experiment": "a", "versions": {"ray": "x" * 1000}}, "at most 100 characters"),
        ({"experiment": "a", "versions": {str(n): "" for n in range(200)}}, "at most 100"),
        ({"experiment": {"a": nested(200)}}, "nested"),
        ({"experiment": {"a": "\ud800"}}, "experiment"),
    ],
)
def test_a_request_that_is_wrong(body: object, told: str, ada: TestClient) -> None:
    sent = json.dumps(body).encode()
    refused = ada.post("/v1/searches", content=sent, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert told in refused.json()["error"]["message"]


def test_a_name_that_no_folder_can_have_is_not_found(ada: TestClient) -> None:
    assert ada.get(f"/runs/{'x' * 300}").status_code == 404


def test_a_request_of_many_keys_is_one_problem(ada: TestClient) -> None:
    for path in ("/v1/searches", "/v1/searches/q/commands"):
        refused = ada.post(path, json={str(number): 0 for number in range(40_000)})
        assert refused.status_code == 422
        assert len(refused.json()["error"]["problems"]) == 1
        assert refused.json()["error"]["message"].startswith("the body of the request: has 40,000 keys; it may have ")


def test_json_that_is_none(ada: TestClient) -> None:
    for text in ("{", "[" * 100_000, "\xff"):
        refused = ada.post("/v1/searches", content=text.encode("latin-1"), headers={"Content-Type": "application/json"})
        assert refused.status_code in (400, 422)
        assert refused.json()["error"]["exit_status"] == 2


def test_a_full_disk(service: Service, ada: TestClient, checked: list[str]) -> None:
    service.queue.broken = OSError(28, "No space left on device")
    refused = ada.post("/v1/searches", json={"experiment": EXPERIMENT})
    assert refused.status_code == 503
    assert refused.json()["error"]["message"] == "the storage fails: No space left on device"
    assert refused.json()["error"]["exit_status"] == 4


def test_everybody_reads_and_only_the_owner_or_an_admin_controls(service: Service, ada: TestClient) -> None:
    service.search("q")
    service.queue.logs["q"] = "trial #1\ntrial #2\n"
    bob = service.client("bob")
    assert [row["name"] for row in bob.get("/v1/searches").json()] == ["q"]
    assert bob.get("/v1/searches/q").json()["user"] == "ada"
    assert bob.get("/v1/searches/q/logs?offset=9").json() == {
        "name": "q",
        "log": "trial #2\n",
        "offset": 18,
        "state": "queued",
    }
    assert bob.get("/v1/searches/q/logs?offset=18").json()["log"] == ""
    other = bob.get("/v1/searches/q/logs?offset=19").json()
    assert (other["log"], other["offset"]) == ("trial #1\ntrial #2\n", 18)
    for verb, body in (("stop", None), ("resume", None), ("commands", {"do": "pause"})):
        refused = bob.post(f"/v1/searches/q/{verb}", json=body)
        assert refused.status_code == 403
        assert "only ada or an admin" in refused.json()["error"]["message"]
    assert service.queue.entry("q").state == "queued"
    assert ada.post("/v1/searches/q/stop").json() == {"name": "q", "was_running": True}
    assert ada.get("/v1/searches/q").json()["reason"] == "stopped by ada"
    resumed = service.client("root").post("/v1/searches/q/resume").json()
    assert (resumed["state"], resumed["reason"]) == ("queued", "resumed by root")
    assert service.client("root").post("/v1/searches/q/resume").status_code == 422


def test_commands_are_left_for_the_search_that_runs(service: Service, ada: TestClient, tmp_path: Path) -> None:
    service.search("q", state="running")
    journal = Journal(tmp_path, "q")
    refused = ada.post("/v1/searches/q/commands", json={"do": "pause"})
    assert "no process works on this run" in refused.json()["error"]["message"]
    with locked(journal.folder):
        for do, arguments, told in (
            ("slots", {"trials": None}, "only the queue limits searches"),
            ("dance", {}, "dance"),
            ("stop-trial", {}, "trial"),
        ):
            refused = ada.post("/v1/searches/q/commands", json={"do": do, "arguments": arguments})
            assert refused.status_code == 422
            assert told in refused.json()["error"]["message"]
        with journal.answers_a_command() as answered:
            answer = ada.post("/v1/searches/q/commands", json={"do": "pause"})
    assert (answered[0].do, answered[0].by) == ("pause", "ada")
    assert answer.status_code == 200, answer.text
    assert answer.json() | {"id": ""} == {"id": "", "done": True, "reason": "", "trials": []}


def test_lists_by_user_and_state(service: Service, ada: TestClient) -> None:
    service.search("a")
    service.search("b", user="bob", state="running")
    assert [row["name"] for row in ada.get("/v1/searches?user=bob").json()] == ["b"]
    assert [row["name"] for row in ada.get("/v1/searches?state=queued").json()] == ["a"]


@pytest.mark.parametrize("path", ["", "/logs", "/files", "/stop", "/resume", "/commands"])
def test_a_search_that_there_is_not(path: str, service: Service, ada: TestClient) -> None:
    service.search("q")
    for name in ("nothing", "..", "%2e%2e", "q%2F..%2Fq"):
        verb = "POST" if path in ("/stop", "/resume", "/commands") else "GET"
        answer = ada.request(verb, f"/v1/searches/{name}{path}", json={"do": "pause"})
        assert answer.status_code in (404, 405), name
        assert answer.json()["error"]["exit_status"] == 2


def test_the_files_of_a_run_come_as_they_are(service: Service, ada: TestClient, tmp_path: Path) -> None:
    service.search("q")
    assert ada.get("/v1/searches/q/files").status_code == 404
    run = tmp_path / "q"
    (run / "ray/t1").mkdir(parents=True)
    (run / "trials.csv").write_text("id\n")
    (run / "ray/t1" / ("long" * 40)).write_bytes(bytes(700_000))
    (run / ".being-written").write_text("x")
    Path(os.fsdecode(os.fsencode(run) + b"/r\xe9sum\xe9")).write_text("x")
    (run / "out").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("secret")
    sent = ada.get("/v1/searches/q/files")
    assert sent.headers["content-type"] == "application/x-tar"
    unpack(io.BytesIO(sent.content), tmp_path / "copy" / "q")
    assert run_exists(RunFolder.at(run))
    odd = os.fsdecode(b"q/r\xe9sum\xe9")
    assert files_below(tmp_path / "copy") == {"q/trials.csv", "q/ray/t1/" + "long" * 40, odd}
    assert (tmp_path / "copy/q/ray/t1" / ("long" * 40)).stat().st_size == 700_000


def test_code_is_kept_by_its_hash(ada: TestClient) -> None:
    bundle = archive(("t.py", tarfile.REGTYPE, b"def train(config): ...\n"))
    name = hashlib.sha256(bundle).hexdigest()
    assert ada.get(f"/v1/code/{name}").status_code == 404
    assert ada.put(f"/v1/code/{'0' * 64}", content=bundle).status_code == 422
    assert ada.put(f"/v1/code/{name}", content=bundle).json() == {"sha256": name}
    assert ada.get(f"/v1/code/{name}").status_code == 200
    assert ada.put("/v1/code/..%2f..%2fx", content=bundle).status_code in (404, 422)


def test_a_search_with_its_code(service: Service, ada: TestClient) -> None:
    bundle = archive(("t.py", tarfile.REGTYPE, b"def train(config): ...\n"))
    name = hashlib.sha256(bundle).hexdigest()
    ada.put(f"/v1/code/{name}", content=bundle)
    sent = ada.post("/v1/searches", json={"experiment": EXPERIMENT + "name: mine\n", "code": name})
    assert sent.status_code == 201, sent.text
    assert sent.json()["name"].startswith("mine-")
    assert service.queue.entry(sent.json()["name"]).submission.per_trial == {"CPU": 1.0, "GPU": 1.0}


def test_the_cluster(ada: TestClient) -> None:
    found = ada.get("/v1/cluster").json()
    assert (found["unit"], found["gpus"], found["users"]["ada"]["hours"]) == ("GPU", 8.0, 2.0)


def test_metrics_are_behind_the_door(service: Service, ada: TestClient) -> None:
    service.search("q")
    assert "tuner_searches" in ada.get("/metrics").text
    assert service.client().get("/metrics").status_code == 401


def test_the_description_is_true(service: Service, ada: TestClient) -> None:
    """Answers of the routes are as /openapi.json says, errors too."""
    service.search("q")
    described = ada.get("/openapi.json").json()
    for path, template in (
        ("/v1/me", "/v1/me"),
        ("/v1/searches", "/v1/searches"),
        ("/v1/searches/q", "/v1/searches/{name}"),
        ("/v1/searches/q/logs", "/v1/searches/{name}/logs"),
        ("/v1/searches/x", "/v1/searches/{name}"),
        ("/v1/cluster", "/v1/cluster"),
    ):
        answer = ada.get(path)
        (content,) = described["paths"][template]["get"]["responses"][str(answer.status_code)]["content"].values()
        schema = content["schema"] | {"components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())
    assert {path for path in described["paths"] if not path.startswith("/v1/")} <= {"/metrics"}
    assert TypeAdapter(dict).validate_python(described["components"]["schemas"]["SubmitRequest"])
    operations = [verb for path in described["paths"].values() for verb in path.values()]
    assert all(operation.get("summary") and operation.get("description") for operation in operations)


def test_a_bug_is_told_as_one(service: Service) -> None:
    service.queue.broken = RuntimeError("a secret of the inside")
    service.search = None  # type: ignore[assignment]
    client = service.client("ada", raise_server_exceptions=False)
    service.queue.entries = None  # type: ignore[assignment]
    failed = client.get("/v1/searches")
    assert failed.status_code == 500
    assert failed.json()["error"] == {
        "message": "the service failed; its log has the reason",
        "exit_status": 1,
        "problems": [],
    }


def test_searches_are_listed_before_their_journals_are_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.search("q", state="running", position=None)
    Journal(tmp_path, "q").start("t")
    is_open, read = threading.Event(), FollowedRuns.read

    def slow(followed: FollowedRuns, folders: Iterable[RunFolder]) -> Any:
        assert is_open.wait(WITHIN_S)
        return read(followed, folders)

    monkeypatch.setattr(FollowedRuns, "read", slow)
    headers = {"Authorization": f"Bearer {service.token('ada')}"}
    with service.running() as address:
        asked = urllib.request.Request(f"{address}/searches/events", headers=headers)
        with urllib.request.urlopen(asked, timeout=WITHIN_S) as answer:
            told = (json.loads(line[6:]) for line in answer if line.startswith(b"data: {"))
            (row,) = next(told)["rows"]
            assert (row["name"], row["state"], row["progress"]) == ("q", "running", "")
            is_open.set()
            (row,) = next(told)["rows"]
            assert row["progress"] == "0 of 1 trials ended"
