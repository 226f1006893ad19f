"""A Ray session for all tests that need Ray, a browser for all that look at pages: one in each process of pytest."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's 15, trials stand still while other tests compute

_session = contextlib.ExitStack()
"""Ends the Ray session of this process."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two for all everyday tests; none for tests that are chosen by file or group, unless with ``-n``."""
    all_of_them = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return 2 if all_of_them and config.option.markexpr.startswith("not ") else 0


def needs_ray(item: pytest.Item) -> bool:
    return "ray_session" in getattr(item, "fixturenames", ())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of a group (``-m faults``) only files that name its mark are imported: all of them take a process 14 s."""
    group = config.option.markexpr
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and group.isidentifier() and not _names(collection_path, group) else None


@pytest.hookimpl(tryfirst=True)  # before those of the groups are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that use the Ray session come first: they take longest."""
    items.sort(key=lambda item: not needs_ray(item))
    groups = set(re.findall(r"not (\w+)", config.option.markexpr))
    for item in items:
        _check_groups(item, groups.intersection(mark.name for mark in item.iter_markers()))


def pytest_collection_finish() -> None:
    """What exists for all tests is no garbage: each later collection would look at it."""
    gc.collect()
    gc.freeze()


def _check_groups(item: pytest.Item, groups: set[str]) -> None:
    """Raises UsageError if a test would run in none of its groups, or in two of those that CI runs."""
    for group in groups:
        if not _names(item.path, group):
            raise pytest.UsageError(f"{item.nodeid} has the mark {group}, so {item.path.name} must name it")
    if len(groups - {"every_pairing"}) > 1:
        raise pytest.UsageError(f"{item.nodeid} has the marks {', '.join(sorted(groups))}: it would run twice")


@functools.cache
def _names(path: Path, group: str) -> bool:
    """Whether a file of tests names the mark of a group."""
    return f"mark.{group}" in path.read_text()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The other tests see a process without one."""
    if not needs_ray(item):
        _session.close()


def pytest_sessionfinish() -> None:
    _session.close()


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def ray_session() -> None:
    import ray

    if not ray.is_initialized():
        _session.enter_context(_ray())


@pytest.fixture
def two_gpus() -> Iterator[None]:
    """A Ray of its own, with two GPUs that it believes in."""
    with _ray(gpus=2):
        yield


@contextlib.contextmanager
def _ray(gpus: int = 0) -> Iterator[None]:
    import ray

    from tuner.execution.auth import make_token
    from tuner.execution.local_cluster import minimal_services

    make_token()  # Ray's own is open to all, which a search would say
    before = os.environ.get("PYTHONPATH")
    # workers import tuner from this checkout, installed or not, and the Ray of this process (scripts/on_ray)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [before])])
    with minimal_services():
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=gpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium. CI must have one; elsewhere tests that need it are skipped where there is none."""
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if program is None:
        missing = f"none of {', '.join(CHROMIUM)} is on PATH: apt-get install chromium"
        pytest.fail(missing) if "CI" in os.environ else pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()
