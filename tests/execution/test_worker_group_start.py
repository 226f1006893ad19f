"""What the processes of one trial are told, and how they share a batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tuner.execution import worker_group
from tuner.execution.failure_classifier import UserError, classify
from tuner.execution.worker_group import Place, environments
from tuner.runs.failure import Failure
from tuner.training import distributed
from tuner.training.distributed import BACKEND, Group


def test_ranks_that_do_not_start_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def wait(calls: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        asked.append(timeout)
        return calls[:1], calls[1:]

    monkeypatch.setattr(worker_group, "ray", SimpleNamespace(wait=wait))
    actors = [SimpleNamespace(place=SimpleNamespace(remote=lambda log, n=n: f"call {n}")) for n in range(3)]
    with pytest.raises(UserError) as caught:
        worker_group._places(actors, None)
    assert classify(caught.value) == Failure("hung", "rank 2, 3 of its 4 processes did not start within 600 s")
    assert asked == [worker_group.START_S]


CPU = torch.device("cpu")


def test_ranks_are_counted_on_their_nodes_as_torchrun_does() -> None:
    ranks = environments([Place("10.0.0.1"), Place("10.0.0.2"), Place("10.0.0.1")], 4000)
    assert [one["RANK"] for one in ranks] == ["0", "1", "2"]
    assert [one["LOCAL_RANK"] for one in ranks] == ["0", "0", "1"]
    assert [one["LOCAL_WORLD_SIZE"] for one in ranks] == ["2", "1", "2"]
    assert [one["GROUP_RANK"] for one in ranks] == ["0", "1", "0"]
    assert all("CUDA_VISIBLE_DEVICES" not in one for one in ranks)
    assert {(one["WORLD_SIZE"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("3", "10.0.0.1", "4000")}


@pytest.mark.parametrize(
    ("gpus", "seen"),
    [
        ([("3",), ("1",)], ["3,1", "3,1"]),
        ([("0", "1"), ("2", "3")], ["0,2,1,3", "0,2,1,3"]),  # rank 1 takes the GPU with the number 1: its own
        ([("2",), ("2",)], [None, None]),  # they share it, and see nothing else
        ([("GPU-a",), ("GPU-b",)], ["GPU-a,GPU-b", "GPU-a,GPU-b"]),
    ],
)
def test_the_gpu_with_the_local_rank_as_its_number_is_one_of_the_rank(
    gpus: list[tuple[str, ...]], seen: list[str | None]
) -> None:
    ranks = environments([Place("a", gpus[0]), Place("b", ("0",)), Place("a", gpus[1])], 4000)
    assert ranks[1]["CUDA_VISIBLE_DEVICES"] == "0"
    assert [ranks[0].get("CUDA_VISIBLE_DEVICES"), ranks[2].get("CUDA_VISIBLE_DEVICES")] == seen
    for variables, own in zip((ranks[0], ranks[2]), gpus, strict=True):
        if "CUDA_VISIBLE_DEVICES" in variables:
            assert variables["CUDA_VISIBLE_DEVICES"].split(",")[int(variables["LOCAL_RANK"])] in own


@pytest.mark.parametrize(
    ("places", "backend"),
    [
        ([Place("a", ("0",)), Place("a", ("0",)), Place("b", ("0",))], "gloo"),  # on b too: all take the same
        ([Place("a", ("0",)), Place("a", ("1",)), Place("b", ("0",))], None),
        ([Place("a"), Place("a")], None),
    ],
)
def test_ranks_that_share_a_gpu_do_not_talk_by_nccl(places: list[Place], backend: str | None) -> None:
    assert {one.get(BACKEND) for one in environments(places, 4000)} == {backend}


@pytest.mark.parametrize(
    ("gpus", "on_node", "asked", "backend"),
    [(0, 2, None, "gloo"), (2, 2, None, "nccl"), (1, 2, None, "gloo"), (1, 1, None, "nccl"), (1, 1, "gloo", "gloo")],
)
def test_the_group_talks_by_nccl_if_each_process_has_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int, on_node: int, asked: str | None, backend: str
) -> None:
    formed: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", formed.append)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": str(on_node), "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    if asked:
        monkeypatch.setenv(BACKEND, asked)
    with distributed.group():
        assert formed == [backend]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_the_mean_over_shares_is_the_mean_over_the_batch(size: int, length: int) -> None:
    losses = torch.arange(20.0) ** 2
    batch = torch.randperm(20, generator=torch.Generator().manual_seed(0))[:length]
    shares = [Group(rank, size, CPU).share(batch) for rank in range(size)]
    mean = sum(weight * losses[share].mean() for share, weight in shares) / size
    assert mean == pytest.approx(losses[batch].mean().item(), rel=1e-6)
    assert sorted(i for share, weight in shares if weight for i in share.tolist()) == sorted(batch.tolist())
