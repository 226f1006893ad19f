"""What the processes of one trial are told, and how they share a batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tuner.execution import worker_group
from tuner.execution.failure_classifier import UserError, classify
from tuner.execution.worker_group import environments
from tuner.runs.failure import Failure
from tuner.training.distributed import Group


def test_ranks_that_do_not_start_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def wait(calls: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        asked.append(timeout)
        return calls[:1], calls[1:]

    monkeypatch.setattr(worker_group, "ray", SimpleNamespace(wait=wait))
    actors = [SimpleNamespace(address=SimpleNamespace(remote=lambda log, n=n: f"call {n}")) for n in range(3)]
    with pytest.raises(UserError) as caught:
        worker_group._addresses(actors, None)
    assert classify(caught.value) == Failure("hung", "rank 2, 3 of its 4 processes did not start within 600 s")
    assert asked == [worker_group.START_S]


CPU = torch.device("cpu")


def test_ranks_are_counted_on_their_nodes_as_torchrun_does() -> None:
    ranks = environments(["10.0.0.1", "10.0.0.2", "10.0.0.1"], 4000)
    assert [one["RANK"] for one in ranks] == ["0", "1", "2"]
    assert [one["LOCAL_RANK"] for one in ranks] == ["0", "0", "1"]
    assert [one["LOCAL_WORLD_SIZE"] for one in ranks] == ["2", "1", "2"]
    assert {(one["WORLD_SIZE"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("3", "10.0.0.1", "4000")}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_the_mean_over_shares_is_the_mean_over_the_batch(size: int, length: int) -> None:
    losses = torch.arange(20.0) ** 2
    batch = torch.randperm(20, generator=torch.Generator().manual_seed(0))[:length]
    shares = [Group(rank, size, CPU).share(batch) for rank in range(size)]
    mean = sum(weight * losses[share].mean() for share, weight in shares) / size
    assert mean == pytest.approx(losses[batch].mean().item(), rel=1e-6)
    assert sorted(i for share, weight in shares if weight for i in share.tolist()) == sorted(batch.tolist())
