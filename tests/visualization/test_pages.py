"""The pages in a real browser, headless Chromium without a network: what is drawn, and that the tables obey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.made_up_run import made_up_run
from tests.visualization.test_report import add, figures, new_run
from tuner.visualization import run_comparison
from tuner.visualization.html import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MARKS = ".trace path, .trace .point, .contourlayer path"
"""What Plotly draws for data."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(page(made_up_run(folder / "run", 30, 5)))
    return folder / "report.html"


class Opened:
    """A page, and everything that the browser complained of."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(offline=True, **options).new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda r: self.complaints.append(r.url) if r.url.startswith("http") else None)
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]")

    def marks(self) -> dict[str, int]:
        """How much is drawn in each figure."""
        counted = f"plots => Object.fromEntries(plots.map(p => [p.id, p.querySelectorAll('{MARKS}').length]))"
        found: dict[str, int] = self.page.eval_on_selector_all(".plot", counted)
        return found

    def column(self, name: str) -> list[str]:
        """The texts of a column of the table of trials, as far as its rows are shown."""
        number = 1 + self.page.locator("#trial-table th").all_inner_texts().index(name)
        return self.page.locator(f"#trial-table tbody tr:visible td:nth-child({number})").all_inner_texts()


@pytest.fixture(scope="module")
def desktop(browser: Browser, report: Path) -> Iterator[Opened]:
    opened = Opened(browser, report)
    yield opened
    opened.page.context.close()


def test_every_figure_is_drawn_and_nothing_is_complained_of(desktop: Opened, report: Path) -> None:
    marks = desktop.marks()
    assert marks.keys() == figures(report.read_text()).keys()
    assert len(marks) == 14
    assert all(marks.values()), marks
    assert desktop.complaints == []


def test_the_table_is_filtered_and_sorted(desktop: Opened) -> None:
    box = desktop.page.get_by_label("filter")
    box.fill("status=completed lr<0.1")
    assert set(desktop.column("status")) == {"completed"}
    shown = [float(text) for text in desktop.column("lr")]
    assert shown
    assert max(shown) < 0.1
    assert desktop.page.locator("output").inner_text() == f"{len(shown)} of 30"
    box.fill("")
    assert len(desktop.column("#")) == 30
    desktop.page.get_by_role("button", name="lr", exact=True).click()
    ascending = [float(text) for text in desktop.column("lr")]
    assert ascending == sorted(ascending)
    desktop.page.get_by_role("button", name="momentum").click()
    desktop.page.get_by_role("button", name="momentum").click()
    momenta = desktop.column("momentum")
    present = [float(text) for text in momenta if text]
    assert present == sorted(present, reverse=True)
    assert momenta == [*momenta[: len(present)], *[""] * (30 - len(present))]  # absent ones come last
    box.fill("no such word")
    assert desktop.page.locator("output").inner_text() == "0 of 30"


def test_figures_follow_the_page_into_the_dark(desktop: Opened) -> None:
    ink = "document.querySelector('#curves .xtick text').style.fill"
    light = desktop.page.evaluate(ink)
    desktop.page.emulate_media(color_scheme="dark")
    desktop.page.wait_for_function(f"{ink} !== '{light}'")
    assert desktop.page.evaluate(ink) == "rgb(232, 232, 232)"
    desktop.page.emulate_media(color_scheme="light")
    assert desktop.complaints == []


def test_a_phone_scrolls_in_one_direction_only(browser: Browser, report: Path) -> None:
    phone = Opened(browser, report, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    widths = phone.page.eval_on_selector_all(".plot:not(#parallel)", "plots => plots.map(p => p.offsetWidth)")
    assert max(widths) <= 390
    assert all(phone.marks().values())
    assert phone.complaints == []
    phone.page.context.close()


def test_a_front_and_a_comparison_are_drawn(browser: Browser, tmp_path: Path) -> None:
    both = [{"metric": "acc", "mode": "max"}, {"metric": "size", "mode": "min"}]
    front = new_run(tmp_path / "front", objective=both)
    for i in range(12):
        add(front, 0.1 * i).reports[0].metrics["size"] = float(abs(i - 6))
    (tmp_path / "front.html").write_text(page(front))
    runs = [made_up_run(tmp_path / name, 4, 3) for name in ("one", "two")]
    (tmp_path / "compare.html").write_text(run_comparison.page(run_comparison.race(runs)))
    for file, least in (("front.html", {"front", "curves", "parallel"}), ("compare.html", {"incumbents-1"})):
        opened = Opened(browser, tmp_path / file)
        marks = opened.marks()
        assert least <= marks.keys()
        assert all(marks.values()), marks
        assert opened.complaints == []
        opened.page.context.close()
