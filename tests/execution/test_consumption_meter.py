"""What a process consumes, measured in this one; GPUs are numbers that stand in for torch's and the driver's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from tuner.execution import consumption_meter, gpus, host_memory
from tuner.execution.consumption_meter import ConsumptionMeter
from tuner.runs.consumption import GIB, Consumption

MIB = 2**20
CHILD = "import sys; held = bytearray(b'1' * int(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"


def block(mib: int) -> np.ndarray:
    return np.ones(mib * MIB, dtype=np.uint8)


def peak(meter: ConsumptionMeter) -> float:
    found = meter.read().peak_host_gib
    assert found is not None
    return found * 1024


def test_a_peak_between_two_looks_counts_and_that_of_the_trial_before_does_not() -> None:
    meter = ConsumptionMeter()
    with meter.running():
        before = peak(meter)
        block(256)  # is freed at once
        assert peak(meter) > before + 200
    with meter.running():
        assert peak(meter) < before + 100
        assert peak(meter) >= meter.read().host_gib * 1024


def test_where_the_system_cannot_begin_a_peak_anew_it_is_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    block(256)
    monkeypatch.setattr(host_memory, "reset_peak", lambda: False)
    meter = ConsumptionMeter()
    with meter.running():
        assert peak(meter) < host_memory.own_memory().resident / MIB + 50


def test_without_proc_the_resident_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(path: str) -> dict[str, int]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(host_memory, "_numbers", no_file)
    monkeypatch.setattr(host_memory, "reset_peak", lambda: False)
    found = host_memory.own_memory()
    assert found.resident > 10 * MIB
    assert found.peak == 0
    with (meter := ConsumptionMeter()).running():
        assert peak(meter) > 10


@contextlib.contextmanager
def started_child() -> Iterator[subprocess.Popen[str]]:
    """A process that holds 200 MiB."""
    command = [sys.executable, "-c", CHILD, str(200 * MIB)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_processes_that_a_trial_starts_count_while_they_run() -> None:
    meter = ConsumptionMeter()
    with meter.running():
        meter.sample()  # other tests may have left processes, such as a browser
        alone = meter.read()
        with started_child():
            meter.sample()
            together = meter.read()
            assert 190 < 1024 * (together.host_gib - alone.host_gib) < 260
            assert together.peak_host_gib > alone.host_gib + 190 / 1024
        meter.sample()
        ended = meter.read()
        assert ended.peak_host_gib == together.peak_host_gib
        assert ended.host_gib < alone.host_gib + 0.05


@dataclass
class FakeCuda:
    """``torch.cuda`` with two GPUs, of which the second is used."""

    ready: bool = True
    allocated: int = 2 * GIB
    peak: int = 3 * GIB
    resets: list[int] = field(default_factory=list)

    def is_initialized(self) -> bool:
        return self.ready

    def device_count(self) -> int:
        return 2

    def memory_stats(self, number: int) -> dict[str, int]:
        if number == 0:
            return {}
        told = {"allocated_bytes.all.current": self.allocated, "allocated_bytes.all.peak": self.peak}
        return told | {"reserved_bytes.all.peak": 4 * GIB}

    def reset_peak_memory_stats(self, number: int) -> None:
        self.resets.append(number)

    def get_device_properties(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=f"uuid-{number}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch.cuda", fake)
    return fake


def test_the_memory_of_a_gpu_is_that_of_torch_and_its_use_the_mean_since_the_report_before(cuda: FakeCuda) -> None:
    uses = iter([80, None, 40, 10])
    asked = []

    def use(uuid: str) -> int | None:
        asked.append(uuid)
        return next(uses)

    meter = ConsumptionMeter(use)
    cuda.resets.clear()
    with meter.running():
        assert cuda.resets == [1]
        for _ in range(3):
            meter.sample()
        found = meter.read()
        assert (found.gpu_gib, found.peak_gpu_gib, found.peak_gpu_reserved_gib, found.gpu_use) == (2.0, 3.0, 4.0, 60.0)
        assert asked == ["uuid-1"] * 3
        assert meter.read().gpu_use is None  # nobody has looked since
        cuda.peak = cuda.allocated = GIB  # the trial resets the peak of torch
        meter.sample()
        found = meter.read()
        assert (found.gpu_gib, found.peak_gpu_gib, found.gpu_use) == (1.0, 3.0, 10.0)
    cuda.peak = cuda.allocated = GIB
    with meter.running():
        assert meter.read().peak_gpu_gib == 1.0


@pytest.mark.parametrize("why", ["torch did not start it up", "torch is being imported", "no torch"])
def test_without_a_gpu_its_numbers_are_absent(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, why: str) -> None:
    cuda.ready = False
    if why == "torch is being imported":
        monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace())
    if why == "no torch":
        monkeypatch.delitem(sys.modules, "torch.cuda")
    with (meter := ConsumptionMeter()).running():
        meter.sample()
        assert set(meter.read().named()) == {"host_gib", "peak_host_gib"}


def test_the_use_of_a_gpu_is_asked_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nvml:
        class NVMLError(Exception):
            pass

        def nvmlInit(self) -> None: ...

        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
            if uuid == "GPU-none":
                raise self.NVMLError("not found")
            return uuid

        def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
            if handle == "GPU-mig":
                raise self.NVMLError("not supported")
            return SimpleNamespace(gpu=87)

        def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
            if handle == "GPU-mig":
                raise self.NVMLError("not supported")
            return 312_500  # milliwatts

    monkeypatch.setattr("ray._private.thirdparty.pynvml", Nvml(), raising=False)
    gpus._handle_of.cache_clear()
    assert [gpus.use_of(uuid) for uuid in ("a", "GPU-a", "mig", "none")] == [87, 87, None, None]
    assert [gpus.power_of(uuid) for uuid in ("a", "mig", "none")] == [312.5, None, None]
    gpus._handle_of.cache_clear()


def test_power_is_the_mean_since_the_report_before_and_seconds_are_those_of_the_reports(cuda: FakeCuda) -> None:
    watts = iter([300.0, None, 200.0, 100.0])
    meter = ConsumptionMeter(lambda uuid: None, lambda uuid: next(watts))
    with meter.running():
        for _ in range(3):
            meter.sample()
        assert meter.read(writing=0.123).named().items() >= {"gpu_watts": 250.0, "checkpoint_s": 0.12}.items()
        assert meter.read().gpu_watts is None
        meter.sample()
        assert meter.read().gpu_watts == 100.0


class FakeRanks:
    def __init__(self, *answers: list[Consumption] | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def look(self) -> list[float]:
        self.asked += 1
        return []

    def known(self) -> list[Consumption] | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_with_other_ranks_it_is_all_of_them_or_nothing() -> None:
    with (meter := ConsumptionMeter()).running():
        own = meter.read()
        meter.others = ranks = FakeRanks(None, [Consumption(1.0, 2.0)])
        told = meter.read()
        assert ranks.asked == 1  # the first report does not wait for the next look
        assert told.host_gib == pytest.approx(own.host_gib + 1.0, abs=0.05)
        assert told.peak_host_gib == pytest.approx(own.peak_host_gib + 2.0, abs=0.05)
    with meter.running():
        meter.others = silent = FakeRanks(None)
        assert [meter.read() for _ in range(3)] == [Consumption()] * 3
        assert silent.asked == 1


def test_it_looks_while_the_trial_runs_and_not_after(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> None:
    monkeypatch.setattr(consumption_meter, "SAMPLE_S", 0.001)
    looked = threading.Event()

    def use(uuid: str) -> int:
        looked.set()
        return 50

    meter = ConsumptionMeter(use)
    with meter.running():
        assert looked.wait(30)
        (thread,) = [one for one in threading.enumerate() if one.name == "ray_consumption"]
    thread.join(30)
    assert not thread.is_alive()


def test_a_look_that_began_in_one_trial_does_not_count_in_the_next(cuda: FakeCuda) -> None:
    over = threading.Event()

    def use(uuid: str) -> int:
        over.set()  # the trial ends while the driver is asked
        return 50

    meter = ConsumptionMeter(use)
    meter.sample(over=over)
    assert meter.read().gpu_use is None
