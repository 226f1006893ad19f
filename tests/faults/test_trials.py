"""A trial goes wrong once: it continues from its checkpoint, and the search finds what it would have found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.search import EPOCHS, TOY, Search, check_complete, check_never_taken_back, experiment, outcome

pytestmark = pytest.mark.faults


def misbehaving(folder: Path, how: str, **failures: Any) -> dict[str, Any]:
    params = {"epochs": EPOCHS, "seconds": 0.03, "how": how, "at": 5, "flag": str(folder / "it happened")}
    return experiment(params=params, failures=failures) | {"trainable": f"{TOY}:misbehaving"}


def memory_used() -> float:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (float(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return 1 - available / total


@pytest.mark.parametrize(
    ("how", "kind", "failures"),
    [
        ("raises", "exception", {}),
        ("is killed", "process died", {}),
        ("leaves", "process died", {}),
        ("loops for ever", "hung", {"hang_after": "20s"}),
        ("hogs memory", "host memory", {}),
    ],
)
def test_it_goes_on_from_its_checkpoint(
    tmp_path: Path, whole: Any, how: str, kind: str, failures: dict[str, Any]
) -> None:
    environment = {}
    if how == "hogs memory":  # Ray ends the largest trial when so much of the machine's memory is used
        environment = {
            "RAY_memory_usage_threshold": f"{memory_used() + 0.15:.2f}",
            "RAY_memory_monitor_refresh_ms": "50",
        }
    search = Search(tmp_path, environment=environment).start(misbehaving(tmp_path, how, **failures))
    status, said = search.wait()
    assert status == 0, said
    assert (tmp_path / "it happened").exists()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")
    told = json.loads((search.run / "failures.json").read_text())
    ((failure,),) = told.values()
    assert (failure["kind"], failure["step"]) == (kind, 4)
    check_never_taken_back(search)
    if kind == "hung":
        logs = [path.read_text() for path in search.run.glob("ray/*/output.log")]
        assert any("_misbehave" in text for text in logs), "no stack in the log"


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, whole: Any) -> None:
    search = Search(tmp_path).start(experiment(seconds=0.2))
    search.until(lambda: search.reports() >= 4).kill()
    latest = max(search.run.glob("ray/*/checkpoint_*/weights.bin"), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(latest.read_bytes())
    data[500] ^= 1
    latest.write_bytes(data)
    search.finish()
    assert "weights.bin" in search.said
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")
