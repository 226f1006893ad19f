"""Number formats: what is computed in which, and the scaler of fp16."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuner.training import checkpointing, precision
from tuner.training.device import fastest_precision
from tuner.training.precision import Precision

CPU = torch.device("cpu")
FP16 = precision._problem_of_fp16_on_the_cpu() == ""
needs_fp16 = pytest.mark.skipif(not FP16, reason="torch cannot train in fp16 on this CPU")


class Training:
    def __init__(self, kind: Any, scale: float | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.precision = Precision(kind, CPU)
        if scale is not None:
            self.precision.load_state_dict({**self.precision.state_dict(), "scale": scale, "growth_interval": 3})
        self.losses: list[float] = []

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scaler": self.precision}

    def run(self, numbers: range, max_norm: float | None = 1.0) -> None:
        for k in numbers:
            x = torch.randn(16, 4, generator=torch.Generator().manual_seed(k))
            with self.precision.autocast():
                y = self.model(x)
            loss = (y.float() - x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            self.precision.backward(loss)
            self.precision.step(self.optimizer, self.model, max_norm)
            self.losses.append(loss.item())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), pytest.param("fp16", torch.float16, marks=needs_fp16)],
)
def test_the_network_computes_in_the_format_and_learns(kind: Any, dtype: torch.dtype) -> None:
    training = Training(kind)
    with training.precision.autocast():
        assert training.model(torch.ones(2, 4)).dtype == dtype
    training.run(range(60))
    assert training.losses[-1] < training.losses[0] / 5
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in training.model.parameters() if p.grad is not None)


def test_auto_is_what_the_device_module_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Precision("auto", CPU).kind == fastest_precision(CPU)
    for answer in ("fp32", "bf16"):
        monkeypatch.setattr(precision, "fastest_precision", lambda device, answer=answer: answer)
        assert Precision("auto", CPU).kind == answer


@pytest.mark.parametrize("kind", ["fp32", pytest.param("fp16", marks=needs_fp16)])
def test_clipping_sees_unscaled_gradients(kind: Any) -> None:
    def gradients(kind: Any, max_norm: float | None) -> tuple[float, float]:
        model = nn.Linear(4, 1)
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        one = Precision(kind, CPU)
        one.load_state_dict({**one.state_dict(), "scale": 1024.0})  # the first scale overflows for a sum
        with one.autocast():
            y = model(torch.ones(1, 4))
        one.backward(y.float().sum())
        norm = one.step(optimizer, model, max_norm)
        assert norm is not None
        moved = torch.cat([(model.weight - 1).flatten(), model.bias]).detach()
        return float(norm), float(moved.norm())

    assert gradients(kind, None) == pytest.approx((math.sqrt(5), math.sqrt(5)), rel=1e-3)
    assert gradients(kind, 0.5) == pytest.approx((math.sqrt(5), 0.5), rel=1e-3)


@needs_fp16
def test_an_overflow_takes_no_step_and_halves_the_scale() -> None:
    training = Training("fp16", scale=1024.0)
    before = [p.detach().clone() for p in training.model.parameters()]
    x = torch.ones(2, 4)
    with training.precision.autocast():
        y = training.model(x)
    training.precision.backward(y.float().sum() * 1e38)
    norm = training.precision.step(training.optimizer, training.model, 1.0)
    assert norm is not None
    assert not math.isfinite(float(norm))
    assert all(torch.equal(p, old) for p, old in zip(training.model.parameters(), before, strict=True))
    assert training.precision.state_dict()["scale"] == 512.0


@needs_fp16
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_fp16_continues_to_the_bit_from_a_checkpoint(tmp_path: Path, cut: int) -> None:
    whole = Training("fp16", scale=4.0)
    whole.run(range(10))
    assert whole.precision.state_dict()["scale"] == 32.0  # doubled after every third step
    first = Training("fp16", scale=4.0)
    first.run(range(cut))
    checkpointing.save(tmp_path, epoch=cut, metrics={}, **first.parts())
    resumed = Training("fp16")
    checkpointing.restore(tmp_path, **resumed.parts())
    resumed.run(range(cut, 10))
    assert first.losses + resumed.losses == whole.losses
    assert resumed.precision.state_dict() == whole.precision.state_dict()


@needs_fp16
def test_a_checkpoint_of_another_format_loads(tmp_path: Path) -> None:
    for before, after in (("bf16", "fp16"), ("fp16", "bf16")):
        first = Training(before)
        first.run(range(2))
        checkpointing.save(tmp_path, epoch=2, metrics={}, **first.parts())
        resumed = Training(after)
        checkpointing.restore(tmp_path, **resumed.parts())
        resumed.run(range(2, 4))
        assert all(map(math.isfinite, resumed.losses))


def test_a_step_without_the_model_measures_nothing() -> None:
    training = Training("fp32")
    training.precision.backward(training.model(torch.ones(2, 4)).sum())
    assert training.precision.step(training.optimizer) is None
    with pytest.raises(ValueError, match=r"max_norm: 1\.0, but without the model"):
        training.precision.step(training.optimizer, max_norm=1.0)


# ------------------------------------------------------------------------------------------- what cannot be done


def test_unknown_kinds_and_tf32_on_a_cpu_are_refused() -> None:
    kind: Any = "fp8"
    with pytest.raises(ValueError, match="precision: 'fp8'; allowed: fp32, tf32, bf16, fp16, auto"):
        Precision(kind, CPU)
    with pytest.raises(ValueError, match="'tf32' needs a GPU"):
        Precision("tf32", CPU)


def test_fp16_is_refused_where_torch_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: Any) -> Any:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'\nstack")

    monkeypatch.setattr(nn.functional, "linear", lacking)
    with pytest.raises(ValueError, match=r"cannot train in 'fp16' on this CPU \(\"addmm_impl_cpu_\" not .*Half'\)"):
        Precision("fp16", CPU)
    Precision("bf16", CPU)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device that claims to be a GPU, and the settings of the process put back."""
    monkeypatch.setattr(precision, "_has_tf32", lambda device: True)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    parts: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]  # type: ignore[attr-defined]
    before = [part.fp32_precision for part in parts]
    yield
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value


@pytest.mark.usefixtures("gpu")
def test_each_object_sets_tf32_on_a_gpu() -> None:
    device = torch.device("cuda")
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    for kind, expected in (("tf32", "tf32"), ("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")):
        Precision(kind, device)  # type: ignore[arg-type]
        assert [matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision] == [expected] * 3
    Precision("tf32", device)
    Precision("fp32", CPU)  # a CPU leaves it
    assert matmul.fp32_precision == "tf32"
