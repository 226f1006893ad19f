"""Who is let in: tokens, browsers, other sites, and those who ask too often."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections import Counter
from pathlib import Path

import anyio
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from tests.event_loops import in_thread
from tests.live.journals import Journal
from tests.runs.test_listing import saved
from tests.service.http import Service
from tuner.errors import EnvironmentFailure
from tuner.service import auth
from tuner.service.auth import COOKIE, Door
from tuner.service.errors import TooMany
from tuner.service.limits import AtOnce, Buckets, Limits
from tuner.service.tokens import Tokens
from tuner.storage.folder import RunFolder

PATHS = ["/", "/metrics", "/openapi.json", "/v1/me", "/v1/searches", "/v1/nothing", "/runs/q", "/docs"]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", [None, "Bearer ", "Bearer x", "Basic YTpi", "Bearer tuner_" + "a" * 43, "tuner_x"])
def test_without_a_token_nothing_is_told(path: str, header: str | None, service: Service) -> None:
    service.search("secret-name")
    refused = service.client().get(path, headers={} if header is None else {"Authorization": header})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    error = refused.json()["error"]
    assert (error["exit_status"], error["message"].count("\n")) == (2, 0)
    assert "secret-name" not in refused.text


def test_an_expired_token_says_so(service: Service) -> None:
    token = service.tokens.add("ada", expires_s=1e-6)
    refused = service.client().get("/v1/me", headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 401
    assert "the token of ada expired at" in refused.json()["error"]["message"]
    assert token not in refused.text


def test_a_browser_logs_in_once(service: Service) -> None:
    service.search("q")
    browser = service.client()
    led = browser.get("/", headers={"Accept": "text/html"})
    assert (led.status_code, led.headers["location"]) == (303, "/login")
    assert "<form" in browser.get("/login").text
    wrong = browser.post("/login", data={"token": "x"}, headers={"Origin": "http://tuner.test"})
    assert (wrong.status_code, "nobody" in wrong.text, wrong.cookies.get(COOKIE)) == (401, True, None)
    browser = service.browser("ada")
    assert "searches.js" in browser.get("/").text
    assert browser.get("/v1/me").json()["user"] == "ada"
    browser.post("/logout", headers={"Origin": "http://tuner.test"})
    assert browser.get("/v1/me").status_code == 401


def test_the_cookie_is_for_no_script_and_no_other_site(service: Service) -> None:
    sent = service.client().post(
        "/login", data={"token": service.token("ada")}, headers={"Origin": "http://tuner.test"}
    )
    others = 'a={}; b="x; c[]=1; '
    cookie = others + sent.headers["set-cookie"].split(";")[0]
    assert service.client().get("/v1/me", headers={"Cookie": cookie}).json()["user"] == "ada"
    words = {word.strip().lower() for word in sent.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= words
    assert "secure" not in words
    proxied = TestClient(service.app, "https://tuner.test", follow_redirects=False)
    sent = proxied.post("/login", data={"token": service.token("ada")}, headers={"Origin": "https://tuner.test"})
    assert "secure" in sent.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://tuner.test.evil.test"},
        {"Origin": "http://tuner.test:8000"},
        {"Origin": "http://tuner.test", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://tuner.test", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing(headers: dict[str, str], service: Service) -> None:
    service.search("q")
    browser = service.browser("ada")
    assert browser.post("/v1/searches/q/stop", headers=headers).status_code == 403
    assert browser.post("/login", data={"token": "x"}, headers=headers).status_code == 403
    assert service.queue.entry("q").state == "queued"
    sent = browser.post("/v1/searches/q/stop", headers={"Origin": "http://tuner.test", "Sec-Fetch-Site": "same-origin"})
    assert sent.status_code == 200


@pytest.mark.parametrize("host", ["", "a b", "evil.test/x", 'x"><script>', "x:y", "a\tb", "user@host", "[::1"])
def test_a_host_that_is_none(host: str, service: Service) -> None:
    refused = service.client("ada").get("/v1/me", headers={"Host": host})
    assert refused.status_code == 403
    assert "script" not in refused.text


@pytest.mark.parametrize("path", ["/searches/events%0A", "/v1/me%0A", "/runs/q/events%00", "/%7F"])
def test_a_path_that_cannot_be_printed(path: str, service: Service) -> None:
    assert service.client("ada").get(path).status_code == 403


def test_no_answer_repeats_the_name_of_the_host(service: Service) -> None:
    service.search("q")
    client = service.client("ada")
    for path in (*PATHS, "/v1/searches/", "/login"):
        answer = client.get(path, headers={"Host": "evil.test"})
        assert "evil.test" not in answer.text + str(answer.headers), path


@pytest.mark.parametrize("path", [*PATHS, "/login", "/v1/searches/x"])
def test_pages_load_nothing_from_elsewhere(path: str, service: Service) -> None:
    for client in (service.client(), service.client("ada")):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "https://" not in answer.text


def test_the_page_of_a_run_is_everybodys_and_its_buttons_are_the_owners(service: Service, tmp_path: Path) -> None:
    service.search("q")
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    saved(tmp_path / "older", "2026-01-01T10:00:00+0000", interrupted=False)
    ada, bob = service.browser("ada"), service.browser("bob")
    origin = {"Origin": "http://tuner.test"}
    for browser, name, user in ((ada, "q", "ada"), (bob, "q", ""), (ada, "older", "")):
        page = browser.get(f"/runs/{name}")
        assert (page.status_code, f'data-user="{user}"' in page.text) == (200, True)
        if not user:
            sent = browser.post(f"/runs/{name}/commands", json={"do": "pause", "arguments": {}}, headers=origin)
            assert sent.status_code == 403
    limit = {"do": "slots", "arguments": {"trials": None}}
    assert ada.post("/runs/q/commands", json=limit, headers=origin).status_code == 422
    assert bob.get("/runs/q/data").status_code == 200
    assert bob.get("/runs/nothing").status_code == 404
    assert bob.get("/runs/..%2fq").status_code == 404
    assert service.client().get("/runs/q/data").status_code == 401
    assert not (tmp_path / "q/commands").exists()


def test_the_list_of_searches_is_fed_from_the_queue(service: Service) -> None:
    service.search("q", reason="waits for </script>")
    with service.running() as url:
        bearer = {"Authorization": f"Bearer {service.token('bob')}"}
        request = urllib.request.Request(f"{url}/searches/events", headers=bearer)
        with urllib.request.urlopen(request) as events:
            told = next(line for line in iter(events.readline, b"") if line.startswith(b"data: "))
    (row,) = json.loads(told.removeprefix(b"data: "))["rows"]
    assert (row["name"], row["user"], row["position"], row["has_page"]) == ("q", "ada", 1, False)


@pytest.mark.parametrize("path", ["/searches/events", "/runs/q/events"])
def test_a_page_that_is_open_ends_with_its_token(
    path: str, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CHECK_EVERY_S", 0.1)
    journal = Journal(tmp_path, "q")
    (tmp_path / "q/experiment.yaml").write_text("{}")
    with service.running() as url:
        requests = {
            user: urllib.request.Request(url + path, headers={"Authorization": f"Bearer {service.token(user)}"})
            for user in ("ada", "bob")
        }
        with urllib.request.urlopen(requests["ada"]) as events, urllib.request.urlopen(requests["bob"]) as others:
            assert events.readline() == others.readline() == b"retry: 1000\n"
            service.tokens.revoke("bob")
            assert others.read().endswith(b"\n\n"), "the stream has its end, so this raises no IncompleteRead"
            service.search("later")
            journal.start("later")
            assert any(b'"later"' in line for line in iter(events.readline, b""))


def test_who_has_no_token_holds_no_connection(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_FORM_S", 0.5)
    with service.running() as url:
        slow = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        slow.putrequest("POST", "/login")
        for name, value in {"Origin": url, "Content-Type": "application/x-www-form-urlencoded"}.items():
            slow.putheader(name, value)
        slow.putheader("Content-Length", "9")
        slow.endheaders(b"token=")
        refused = slow.getresponse()
        assert (refused.status, b"did not come within" in refused.read()) == (408, True)
        slow.close()


def test_one_user_who_asks_too_often_waits_and_no_other(tmp_path: Path) -> None:
    service = Service(tmp_path, Limits(rate=1e-3, burst=5))
    ada, bob = service.client("ada"), service.client("bob")
    codes = [ada.get("/v1/me").status_code for _ in range(50)]
    assert codes == [200] * 5 + [429] * 45
    refused = ada.get("/v1/me")
    assert int(refused.headers["retry-after"]) >= 900
    assert refused.json()["error"]["exit_status"] == 4
    assert bob.get("/v1/me").status_code == 200


def test_a_large_request_counts_as_several(tmp_path: Path) -> None:
    client = Service(tmp_path, Limits(rate=1e-3, burst=5, bytes_a_token=1000)).client("ada")
    large = b" " * 3000
    codes = [client.post("/v1/searches", content=large).status_code for _ in range(2)]
    assert codes == [422, 429]
    pieces = (b" " for _ in range(3))  # without a length it may be as large as allowed
    assert client.post("/v1/searches", content=pieces).status_code == 429
    assert client.get("/v1/me").status_code == 200


def test_wrong_tokens_from_one_address_stop_to_be_looked_up_and_right_ones_work(tmp_path: Path) -> None:
    service = Service(tmp_path, Limits(refused_rate=1e-3, refused_burst=5))
    client = service.client()
    codes = [client.get("/v1/me", headers={"Authorization": "Bearer x"}).status_code for _ in range(20)]
    assert codes == [401] * 5 + [429] * 15
    assert service.client("ada").get("/v1/me").status_code == 200


def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    service = Service(tmp_path, Limits(body=1000))
    client = service.client("ada")
    refused = client.post("/v1/searches", json={"experiment": "x" * 1000})
    assert refused.status_code == 413
    assert refused.json()["error"]["exit_status"] == 2
    pieces = (b"x" * 500 for _ in range(3))  # without a length
    refused = client.post("/v1/searches", content=pieces, headers={"Content-Type": "application/json"})
    assert refused.status_code == 413
    nobody, origin = service.client(), {"Origin": "http://tuner.test"}
    assert nobody.post("/login", data={"token": "x" * 100_000}, headers=origin).status_code == 413
    assert client.put(f"/v1/code/{'0' * 64}", content=bytes(51 * 2**20)).status_code == 413


def test_tokens_that_cannot_be_read_let_nobody_in(service: Service, tmp_path: Path) -> None:
    (tmp_path / ".service").mkdir()
    (tmp_path / ".service/tokens.json").write_text("{")
    refused = service.client().get("/v1/me", headers={"Authorization": "Bearer x"})
    assert refused.status_code == 503
    assert "tokens.json cannot be read" in refused.json()["error"]["message"]
    assert service.client().get("/healthz").json() == {"status": "ok"}


def test_tokens_of_a_bucket_come_back() -> None:
    now = [0.0]
    bucket = Buckets(rate=2.0, burst=4.0, clock=lambda: now[0])
    for _ in range(4):
        bucket.take("ada")
    with pytest.raises(TooMany) as error:
        bucket.take("ada")
    assert error.value.wait_s == 0.5
    bucket.take("bob")
    now[0] += 0.5
    bucket.take("ada")
    with pytest.raises(TooMany):
        bucket.take("ada")
    now[0] += 1000
    for _ in range(4):
        bucket.take("ada")
    with pytest.raises(TooMany):
        bucket.take("ada")


def test_a_bucket_for_each_of_a_million_addresses_is_not_kept() -> None:
    now = [0.0]
    bucket = Buckets(rate=1.0, burst=1.0, clock=lambda: now[0])
    for number in range(10_000):
        now[0] += 0.01
        bucket.take(str(number))
    assert len(bucket._left) < 300


def test_so_many_requests_of_a_user_at_once() -> None:
    limit = AtOnce(2, "requests")
    with limit.one("ada"), limit.one("ada"):
        with pytest.raises(EnvironmentFailure, match="ada has 2 requests at once"), limit.one("ada"):
            pass
        with limit.one("bob"):
            pass
    with limit.one("ada"):
        pass


async def _answered_by(door: Door, token: str, path: str) -> None:
    headers = [(b"host", b"h"), (b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers, "client": None}

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        pass

    await door(scope, receive, send)


def test_who_asks_much_waits_for_himself_and_not_others_for_him(tmp_path: Path) -> None:
    tokens = Tokens(RunFolder.at(tmp_path))
    ada, bob = tokens.add("ada"), tokens.add("bob")
    works: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def main() -> None:
        go = anyio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            user = scope["state"]["token"].user
            works[user] += 1
            most[user] = max(most[user], works[user])
            if scope["path"] != "/v1/me":
                await go.wait()
            works[user] -= 1

        door = Door(app, tokens, Limits(in_work=2))
        async with anyio.create_task_group() as group:
            for _ in range(9):
                group.start_soon(_answered_by, door, ada, "/v1/searches")
            for _ in range(3):
                group.start_soon(_answered_by, door, bob, "/runs/a/events")
            while works["ada"] < 2 or works["bob"] < 3:
                await anyio.sleep(0)
            await _answered_by(door, bob, "/v1/me")
            go.set()

    in_thread(main())
    assert most == {"ada": 2, "bob": 4}
