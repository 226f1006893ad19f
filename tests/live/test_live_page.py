"""The live pages in a real browser, headless Chromium: what is seen, by whom, and when the server goes and comes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI

from tests.benchmarks.made_up_run import SPEC, made_up_run
from tests.live.journals import Journal
from tests.live.proxy import proxied
from tests.live.servers import running, served
from tests.service.http import Service
from tuner.live.changes import LONGEST
from tuner.live.searches import SearchRow, searches_routes
from tuner.runs.commands import waiting_commands
from tuner.search import orders
from tuner.service import auth
from tuner.spec.quantities import format_duration
from tuner.storage.lock import LOCK, locked

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WITHIN_MS = 60_000
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
HOSTILE = '<img src=x onerror="alert(1)">&amp;<script>alert(2)</script>'


class Viewer:
    """A page in a browser of its own, and everything that the browser complained of."""

    def __init__(self, browser: Browser, address: str, before: Callable[[Page], None] = lambda page: None, **of: Any):
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(**of).new_page()
        self.page.set_default_timeout(WITHIN_MS)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        before(self.page)
        self.page.goto(address)
        self.page.wait_for_selector("html[data-drawn]", state="attached")

    def until(self, condition: str, value: Any = None) -> None:
        """Waits until a JavaScript condition holds."""
        self.page.wait_for_function(condition, arg=value)

    def until_says(self, place: str, text: str) -> None:
        """Waits until an element holds a text."""
        self.until("([place, text]) => document.querySelector(place)?.textContent.includes(text)", [place, text])

    def text(self, place: str) -> str:
        """Of an element."""
        return self.page.locator(place).inner_text()

    def rows(self, table: str = "#trial-table") -> list[str]:
        """The rows of a table."""
        return self.page.locator(f"{table} tbody tr").all_inner_texts()


Watch = Callable[..., Viewer]


@pytest.fixture
def watch(browser: Browser) -> Iterator[Watch]:
    """Opens pages, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def opened(address: str, **options: Any) -> Viewer:
            viewer = Viewer(browser, address, **options)
            stack.callback(viewer.page.context.close)
            return viewer

        yield opened


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Of a search that runs."""
    made = Journal(tmp_path)
    made.start("a")
    made.report("a", 1, 0.5)
    made.live(slots=2, trials={"a": {"state": "running", "since": 0.0}})
    with locked(made.folder, LOCK):
        yield made


def test_two_browsers_see_the_same_as_it_happens(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    with served(tmp_path) as address:
        viewers = [watch(f"{address}/runs/run") for _ in range(2)]
        for step in range(2, 5):
            journal.report("a", step, 0.3 * step)
            for viewer in viewers:
                viewer.until_says('[data-tile="best"] .value', f"{0.3 * step:.4g}")
        journal.start("b")
        journal.fail("a", 4, "CUDA out of memory")
        journal.end("a", "failed")
        journal.commanded("stop-trial", "ada@host", trial="a")
        for viewer in viewers:
            viewer.until_says('[data-part="failures"] tbody', "CUDA out of memory")
            viewer.until_says('[data-part="commands"] tbody', "ada@host")
            viewer.until("() => document.querySelectorAll('#trial-table tbody tr').length === 2")
            assert viewer.text(".state") == "running"
            assert viewer.complaints == []
        assert viewers[0].rows() == viewers[1].rows()


def test_a_page_continues_when_the_server_is_there_again(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    journal.fail("a", 1, "first")
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/run")
        viewer.until_says(".link", "live")
        port = int(address.rpartition(":")[2])
    viewer.until_says("span.link", "not connected")
    journal.fail("a", 1, "second")
    journal.report("a", 2, 0.75)
    with served(tmp_path, port=port):
        viewer.until_says('[data-part="failures"] tbody', "second")
        viewer.until("() => document.querySelector('span.link').textContent === 'live'")
        failures = viewer.rows('[data-part="failures"] table')
        assert [("second" in row, "first" in row) for row in failures] == [(True, False), (False, True)]
        viewer.until_says('[data-tile="best"] .value', "0.75")


@pytest.mark.processes
def test_a_slow_network_shows_a_large_run_and_what_changes(watch: Watch, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "large", 300, 20)

    def slow(page: Page) -> None:
        network = {"offline": False, "latency": 300, "downloadThroughput": 50_000, "uploadThroughput": 20_000}
        page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", network)

    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/large", before=slow)
        assert len(viewer.rows()) == 100
        assert viewer.text('[data-part="trials"] output') == "300 of 300"
        again = Journal.of(run.folder)
        again.start("new")
        again.report("new", 1, 9.5)
        viewer.until_says('[data-tile="best"] .value', "9.5")
        assert viewer.complaints == []


def test_names_and_messages_of_others_are_text(watch: Watch, tmp_path: Path) -> None:
    journal = Journal(
        tmp_path, HOSTILE.replace("/", "|"), objective={"metric": HOSTILE, "mode": "max"}, params={HOSTILE: 1}
    )
    journal.start("a", **{HOSTILE: HOSTILE, "__proto__": "p", "constructor": 1})
    journal.report("a", 1, 0.5, metrics={HOSTILE: 0.5, "a" * 5000: 1})
    journal.fail("a", 1, HOSTILE)
    journal.commanded(HOSTILE, HOSTILE, done=False, x=HOSTILE)
    journal.live(slots=1, trials={"a": {"state": HOSTILE, "since": 0.0}})
    printed = tmp_path / journal.folder.path / "ray" / "a" / "output.log"
    printed.parent.mkdir(parents=True)
    printed.write_text(HOSTILE)
    with served(tmp_path, HOSTILE) as address, locked(journal.folder, LOCK):
        name = HOSTILE.replace("/", "|").replace("<", "%3C").replace(">", "%3E").replace('"', "%22").replace(" ", "%20")
        viewer = watch(f"{address}/runs/{name}")
        viewer.page.locator("#trial-table tbody tr").click()
        viewer.until_says("pre.log", HOSTILE)
        viewer.until("name => document.querySelectorAll('[data-part=chosen] option').length > 1")
        assert HOSTILE in viewer.text("#trial-table thead")
        assert HOSTILE in viewer.rows()[0]
        assert HOSTILE in viewer.text('[data-part="failures"] tbody')
        assert HOSTILE in viewer.text('[data-part="commands"] tbody')
        assert viewer.page.locator("img, main script").count() == 0
        assert (
            viewer.page.evaluate("Math.max(...[...document.querySelectorAll('option')].map((o) => o.text.length))")
            <= LONGEST
        )
        assert viewer.complaints == []


def test_a_phone_scrolls_in_one_direction_only(watch: Watch, tmp_path: Path) -> None:
    made_up_run(tmp_path / ("a" * 120), 30, 5)
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/{'a' * 120}", **PHONE)
        for number in range(3):
            viewer.page.locator("#trial-table tbody tr").nth(number).locator("td").first.tap()
        viewer.until("() => document.querySelectorAll('[data-part=chosen] thead th').length === 4")
        viewer.until("() => document.querySelector('[data-part=chosen] canvas').dataset.points > 0")
        assert viewer.page.evaluate("document.documentElement.scrollWidth") == 390
        points = viewer.page.eval_on_selector_all("canvas", "all => all.map((one) => Number(one.dataset.points))")
        assert all(points)
        widths = viewer.page.eval_on_selector_all("canvas", "all => all.map((one) => one.clientWidth)")
        assert max(widths) <= 390
        assert viewer.complaints == []


def test_a_phone_logs_in_finds_a_search_and_controls_it(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    journal.start("b", **{"model.encoder.feed_forward.width": 64, "optimizer": "adamw with a long name"})
    service = Service(tmp_path)
    service.search("run", state="running")
    service.search("w" * 120, user="bob", reason="waits for a share of the cluster, as others have what there is of it")
    widths: list[int] = []

    def wide(page: Page) -> None:
        widths.append(page.evaluate("document.documentElement.scrollWidth"))

    def log_in(page: Page) -> None:
        page.goto(address)
        wide(page)
        page.get_by_label("Token").fill(service.token("ada"))
        page.get_by_role("button", name="Log in").tap()
        page.wait_for_selector("#searches a")

    with service.running() as address:
        viewer = watch(address, before=log_in, **PHONE)
        viewer.until("() => document.querySelectorAll('#searches tbody tr').length === 2")
        wide(viewer.page)
        viewer.page.locator("#searches a").first.tap()
        for name in ("more budget", "add a configuration", "narrow the search space"):
            viewer.page.get_by_role("button", name=name).tap()
            wide(viewer.page)
            box = viewer.page.locator("dialog").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            viewer.page.get_by_role("button", name="Cancel").tap()
        viewer.page.get_by_role("button", name="Pause").tap()
        command = sent(viewer, journal)
        assert command.by == "ada"
        answer(journal, command)
        viewer.until_says(".answer", "pause: done")
        assert widths == [390] * 5
        assert viewer.complaints == []


def test_buttons_command_the_search_and_its_answer_is_seen(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    with served(tmp_path, "ada") as address, served(tmp_path) as for_guests:
        viewer, guest = watch(f"{address}/runs/run"), watch(f"{for_guests}/runs/run")
        viewer.page.get_by_role("button", name="Pause").click()
        command = sent(viewer, journal)
        assert (command.do, command.by, command.arguments) == ("pause", "ada", {})
        answer(journal, command)
        viewer.until_says(".answer", "pause: done")
        guest.until_says('[data-part="commands"] tbody', "pause")
        viewer.page.locator("#trial-table tbody tr").click()
        viewer.page.get_by_role("button", name="stop trial 1").dblclick()
        command = sent(viewer, journal)
        assert (command.do, command.arguments) == ("stop-trial", {"trial": "a"})
        viewer.page.wait_for_timeout(300)
        assert len(waiting_commands(journal.folder)[0]) == 1
        answer(journal, command, reason="it has ended already")
        viewer.until_says(".answer", "stop-trial was refused: it has ended already")
        guest.page.locator("#trial-table tbody tr").click()
        guest.until("() => document.querySelectorAll('[data-part=chosen] thead th').length === 2")
        assert guest.page.locator("button.action").count() == 0
        assert viewer.complaints == guest.complaints == []


def test_a_clone_and_a_budget_are_sent_as_they_are_written(
    watch: Watch, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "KINDS", dict.fromkeys(("clone", "budget")))
    journal.start("b", **{"name": "sgd", "model.width": 64})
    bodies: list[Any] = []
    with served(tmp_path, "ada") as address:
        viewer = watch(f"{address}/runs/run")
        viewer.page.route("**/commands", lambda route: (bodies.append(route.request.post_data_json), route.abort()))
        viewer.page.locator("#trial-table tbody tr", has_text="sgd").click()
        viewer.page.get_by_role("button", name="clone trial 2").click()
        form = viewer.page.locator("dialog")
        form.get_by_label("lr").fill("0.25")
        form.get_by_label("name").fill("lion")
        form.get_by_role("checkbox").check()
        form.get_by_role("button", name="Send").click()
        viewer.until_says(".answer", "clone: the server does not answer")
        viewer.page.get_by_role("button", name="more budget").click()
        form.get_by_label("trials").fill("120")
        form.get_by_label("time").fill("2h")
        form.get_by_role("button", name="Send").click()
        viewer.until_says(".answer", "budget: the server does not answer")
        viewer.page.get_by_role("button", name="more budget").click()
        form.get_by_role("button", name="Cancel").click()
        form.wait_for(state="detached")
    clone = {"trial": "b", "changes": {"lr": 0.25, "name": "lion"}, "checkpoint": True}
    assert bodies[0] == {"do": "clone", "arguments": clone}
    assert bodies[1:] == [{"do": "budget", "arguments": {"trials": 120, "wall_clock": "2h"}}]


def test_a_configuration_and_a_narrower_space_are_sent_as_they_are_written(
    watch: Watch, tmp_path: Path, journal: Journal
) -> None:
    with served(tmp_path, "ada") as address:
        viewer = watch(f"{address}/runs/run")
        viewer.page.get_by_role("button", name="narrow the search space").click()
        form = viewer.page.locator("dialog")
        assert form.get_by_label("lr.loguniform").input_value() == "[0.0001,1]"
        assert form.get_by_label("momentum").count() == 1, "its condition cannot change"
        form.get_by_label("lr.loguniform").fill("[0.001, 1e-2]")
        form.get_by_role("button", name="Send").click()
        command = sent(viewer, journal)
        assert (command.do, command.by) == ("space", "ada")
        assert command.arguments == {"search_space": {"lr.loguniform": [0.001, 0.01]}}
        narrower = {**SPEC["search_space"], "lr": {"loguniform": [0.001, 0.01]}}
        answer(journal, command, changed={"search_space": narrower})
        viewer.until_says(".answer", "space: done")
        viewer.until_says('[data-part="commands"] tbody', "space")  # the event with the new space has come
        viewer.page.get_by_role("button", name="add a configuration").click()
        assert form.get_by_label("lr").get_attribute("placeholder") == "loguniform [0.001,0.01]"
        form.get_by_label("lr").fill("2e-3")
        form.get_by_label("optimizer").fill("sgd")
        form.get_by_label("momentum").fill("0.9")  # no trial has had it yet
        form.get_by_role("button", name="Send").click()
        command = sent(viewer, journal)
        assert (command.do, command.arguments) == (
            "add",
            {"config": {"lr": 0.002, "optimizer": "sgd", "momentum": 0.9}},
        )
        answer(journal, command)
        viewer.until_says(".answer", "add: done")
        assert viewer.complaints == []


def sent(viewer: Viewer, journal: Journal) -> Any:
    """The command that the page has sent."""
    for _ in range(WITHIN_MS // 50):
        if waiting := waiting_commands(journal.folder)[0]:
            return waiting[0]
        viewer.page.wait_for_timeout(50)
    raise AssertionError(f"no command was sent: {viewer.text('.answer')}")


def answer(journal: Journal, command: Any, reason: str = "", **more: Any) -> None:
    """As the control loop answers."""
    from tuner.runs.commands import discard

    told = {"id": command.id, "do": command.do, "by": command.by, "sent": command.sent}
    outcome = {"arguments": dict(command.arguments), "done": not reason, "reason": reason, "trials": []}
    journal.append("commanded", **told, **outcome, **more)
    discard(journal.folder, command)


def test_durations_and_filters_are_those_of_the_report(watch: Watch, tmp_path: Path) -> None:
    made_up_run(tmp_path / "run", 30, 5)
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/run")
        for seconds in (0.0, 0.04, 59.94, 59.96, 60.4, 3599.6, 3600.0, 360_061.2):
            shown = viewer.page.evaluate(
                "async (s) => (await import(new URL('dom.js', document.scripts[1].src))).duration(s)", seconds
            )
            assert shown == format_duration(seconds) or math.isclose(seconds, 0.04)
        viewer.page.get_by_label("filter").fill("status=completed lr<0.1")
        viewer.until("() => !document.querySelector('output').textContent.startsWith('30 of')")
        rows = viewer.rows()
        assert rows
        assert all("completed" in row for row in rows)
        viewer.page.get_by_role("button", name="lr", exact=True).click()
        column = [float(row.split("\t")[7]) for row in viewer.rows()]
        assert column == sorted(column)
        assert max(column) < 0.1


def test_values_that_differ_by_a_rounding_are_drawn(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    flat = Journal(tmp_path, "flat")
    flat.start("a")
    for step, value in enumerate((0.1 + 0.2, 0.3), 1):
        flat.report("a", step, value)
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/flat")
        assert viewer.text('[data-tile="best"] .value') == "0.3"
        assert viewer.complaints == []


def test_trials_that_break_a_constraint_come_last(watch: Watch, tmp_path: Path) -> None:
    limited = Journal(tmp_path, "limited", outcome_constraints=["latency <= 10"])
    for trial, value, latency in (("a", 0.9, 5.0), ("b", 0.99, 50.0), ("c", 0.8, 5.0)):
        limited.start(trial)
        limited.report(trial, 1, value, metrics={"latency": latency})
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/limited")
        assert [row.split("\t")[0] for row in viewer.rows()] == ["1", "3", "2"]
        assert viewer.complaints == []


def test_focus_stays_while_the_search_continues(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    focused = "() => document.activeElement.textContent"
    with served(tmp_path) as address:
        viewer = watch(f"{address}/runs/run")
        for step, place in enumerate(('[data-part="working"] tbody button', '[data-part="curves"] .keys button'), 2):
            button = viewer.page.locator(place).first
            button.focus()
            name = button.inner_text()
            passed = viewer.text('[data-part="working"] tbody td:nth-child(3)')
            journal.report("a", step, 0.1 * step)
            viewer.until_says('[data-part="working"] tbody td:nth-child(4)', str(step))
            viewer.until(
                "(text) => document.querySelectorAll('[data-part=working] td')[2].textContent !== text", passed
            )
            assert viewer.page.evaluate(focused) == name
        button.press("Enter")
        viewer.until("() => document.activeElement.ariaPressed === 'false'")
        assert viewer.page.evaluate(focused) == name
        assert viewer.complaints == []


@pytest.mark.parametrize("path", ["/", "/runs/run"])
def test_who_has_no_token_any_more_is_told(
    path: str, watch: Watch, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CHECK_EVERY_S", 0.1)
    service = Service(tmp_path)
    token = service.token("bob")
    service.search("run")
    with service.running() as address:
        cookie: Any = {"name": auth.COOKIE, "value": token, "url": address}
        viewer = watch(f"{address}{path}", before=lambda page: page.context.add_cookies([cookie]))
        viewer.until("() => document.querySelector('span.link').textContent === 'live'")
        service.tokens.revoke("bob")
        viewer.until_says("span.link", "your token is not valid any more")
        viewer.page.reload()
        assert viewer.page.url == f"{address}/login"


@pytest.mark.processes
def test_a_person_logs_in_and_controls_through_the_proxy(watch: Watch, tmp_path: Path, journal: Journal) -> None:
    """By TLS, in a real browser, with the service's own door before the pages."""
    service = Service(tmp_path)
    token = service.token("ada")
    service.search("run", state="running")
    kept: list[Any] = []

    def log_in(page: Page) -> None:
        page.goto(secure)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("#searches a")
        kept.extend(page.context.cookies())

    with service.running() as address, proxied(address, tmp_path / "proxy") as secure:
        viewer = watch(f"{secure}/runs/run", before=log_in, ignore_https_errors=True)
        (cookie,) = kept
        kind = {name: cookie[name] for name in ("name", "secure", "httpOnly", "sameSite")}
        assert kind == {"name": auth.COOKIE, "secure": True, "httpOnly": True, "sameSite": "Strict"}
        viewer.until("() => document.querySelector('span.link').textContent === 'live'")
        viewer.page.get_by_role("button", name="Pause").click()
        command = sent(viewer, journal)
        assert (command.do, command.by) == ("pause", "ada")
        answer(journal, command)
        viewer.until_says(".answer", "pause: done")
        journal.report("a", 2, 0.75)
        viewer.until_says("#trial-table tbody", "0.75")
        assert viewer.complaints == []


def test_all_searches_are_listed_as_they_change(watch: Watch) -> None:
    problem = [""]
    rows = [SearchRow(HOSTILE, "ada", "running", best="acc 0.9"), SearchRow("b", "bob", "queued", 1, has_page=False)]
    app = FastAPI()
    app.include_router(searches_routes(lambda: [rows], lambda: problem[0]))
    with running(app) as address:
        viewer = watch(address)
        viewer.until("() => document.querySelectorAll('#searches tbody tr').length === 2")
        assert HOSTILE in viewer.rows("#searches")[0]
        assert viewer.page.locator("#searches a").count() == 1
        rows[1] = SearchRow("b", "bob", "running", progress="1 of 3 trials ended")
        viewer.until_says("#searches tbody tr:nth-child(2)", "1 of 3 trials ended")
        assert viewer.page.locator("#searches a").count() == 2
        problem[0] = "the cluster does not answer"
        viewer.until_says("p.notice", "the cluster does not answer")
        assert viewer.complaints == []
