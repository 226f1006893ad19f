"""The part ``works`` of gpu.py: what must hold on a GPU."""

from __future__ import annotations

import time
from pathlib import Path

from gpu_bench import GIB, TRIALS, Bench

from tuner.execution.gpus import Gpus
from tuner.training import checkpointing


def works(bench: Bench) -> None:
    """What must hold on a GPU."""
    print("| what | expected | found |\n|---|---|---|")
    handed_on(bench)
    saved_beside(bench)
    stacked(bench)
    if not bench.rehearsed:  # torch raises none of these on a CPU
        out_of_memory(bench)
        memory_known(bench)
        failing_kernel(bench)
        memory_left(bench)
    ranks(bench)


def out_of_memory(bench: Bench) -> None:
    """A micro-batch that does not fit is halved until it does, and the peak is recorded."""
    total = Gpus().read()[0].total_bytes
    gib = max(1, total // GIB // 6)
    results = bench.run(
        f"{TRIALS}:needs_memory",
        {"x": {"grid_search": [0]}},
        params={"gib": gib, "micro_batch": 16},
        failures={"retries": 4, "on_oom": "reduce_batch"},
    )
    (trial,) = results.trials
    kinds = [failure.kind for failure in trial.failures]
    found = f"{trial.status}; {', '.join(kinds)}; micro-batch {trial.micro_batch}"
    is_so = trial.status == "completed" and set(kinds) == {"GPU memory"} and trial.micro_batch == 4
    bench.holds("memory runs out (`reduce_batch`)", f"16, 8, then 4 examples of {gib} GiB", found, is_so)
    peak = trial.consumption.peak_gpu_gib or 0.0
    bench.holds("peak memory of a trial", f"{4 * gib} GiB", f"{peak} GiB", abs(peak - 4 * gib) < 0.1)


def memory_known(bench: Bench) -> None:
    """Trials that need one to four times what there is: few run out of memory, once some did."""
    most = Gpus().read()[0].total_bytes / GIB / 16
    results = bench.run(
        f"{TRIALS}:needs_memory",
        {"gib": {"uniform": [most, 4 * most]}},
        params={"micro_batch": 16},
        search={"kind": "random", "seed": 0},
        budget={"trials": 12},
        resources={"cpu": 1, "gpu": 1, "max_concurrent_trials": 1},
    )
    ran_out = sum(bool(trial.failures) for trial in results.trials)
    found = f"{ran_out} of 12 ran out; micro-batches {', '.join(str(trial.micro_batch) for trial in results.trials)}"
    is_so = ran_out <= 3 and results.count("completed") == 12
    bench.holds("memory known beforehand", "at most 3 of 12 run out", found, is_so)


def failing_kernel(bench: Bench) -> None:
    """A device-side assert ends its trial and its process, and no other trial."""
    results = bench.run(
        f"{TRIALS}:breaks",
        {"x": {"grid_search": [0, 1, 2]}},
        failures={"retries": 1},
        resources={"cpu": 1, "gpu": 1, "max_concurrent_trials": 1},
    )
    first, second, third = results.trials
    found = f"{first.status}, {second.status}, {third.status}: {second.failures[0] if second.failures else ''}"
    is_so = (first.status, second.status, third.status) == ("completed", "failed", "completed")
    bench.holds("a kernel that fails (device-side assert)", "completed, failed, completed", found, is_so)


def handed_on(bench: Bench) -> None:
    """A process that used the GPU runs the next trial too, and what it keeps there is no leak."""
    for function, what in (("begins", "a process that used cuBLAS"), ("keeps", "1 GiB that is kept on the GPU")):
        results = bench.run(
            f"{TRIALS}:{function}",
            {"x": {"grid_search": [0, 1, 2]}},
            resources={"cpu": 1, "gpu": 1, "max_concurrent_trials": 1},
        )
        reported = [trial.reports[-1].metrics for trial in results.trials if trial.reports]
        processes, made = len({one["process"] for one in reported}), sum(one.get("made", 0) for one in reported)
        expected = "1 process, 3 trials" + ("; made once" if function == "keeps" else "")
        found = f"{processes} process, {len(reported)} trials" + (f"; made {made}" if function == "keeps" else "")
        is_so = (processes, len(reported), made) == (1, 3, function == "keeps")
        bench.holds(what, expected, found, is_so)


def saved_beside(bench: Bench) -> None:
    """A state on the GPU is saved as it was, while the training changes it."""
    results = bench.run(f"{TRIALS}:saves", {"x": {"grid_search": [0]}}, checkpoints={"keep_per_trial": 4})
    (trial,) = results.trials
    apart = []
    for report in trial.reports:
        content = checkpointing.read(Path(results.folder.path) / str(report.checkpoint))
        apart.append(abs(float(content["model"]["weight"].double().sum()) - report.metrics["score"]))
    found = f"{len(apart)} checkpoints, {max(apart, default=float('nan')):.1e} apart"
    bench.holds(
        "a state saved while the next epoch trains",
        "4 checkpoints, as reported",
        found,
        len(apart) == 4 and max(apart) < 1e-6,
    )


def stacked(bench: Bench) -> None:
    """Eight models of one shape on the GPU, as one and in turn."""
    import torch

    from tuner.training.device import fastest_device
    from tuner.training.stacked import Stacked

    device, steps = fastest_device(), 20 if bench.rehearsed else 500
    x, y = torch.randn(8, 256, 64, device=device), torch.randn(8, 256, 8, device=device)

    def models() -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        made = [
            torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)).to(device)
            for _ in range(8)
        ]
        return made, [torch.optim.SGD(one.parameters(), lr=0.01 * (i + 1), momentum=0.9) for i, one in enumerate(made)]

    def alone(made: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
        for model, optimizer, a, b in zip(made, optimizers, x, y, strict=True):
            for _ in range(steps):
                optimizer.zero_grad()
                (model(a) - b).square().mean().backward()
                optimizer.step()

    def as_one(made: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
        both = Stacked(made, optimizers)
        for _ in range(steps):
            both.step((both(x) - y).square().mean((1, 2)))
        both.write_back()

    seconds, found = [], []
    for way in (alone, as_one):
        way(*models())  # its first calls
        made, optimizers = models()
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        way(made, optimizers)
        found.append([(one(a) - b).square().mean().item() for one, a, b in zip(made, x, y, strict=True)])
        seconds.append(time.perf_counter() - began)
    apart = max(abs(a - b) for a, b in zip(*found, strict=True))
    text = f"{apart:.1e} apart, {seconds[0] / seconds[1]:.2f} times the trainings a second"
    bench.holds("eight stacked models, and each alone", "equal to 1e-4", text, apart < 1e-4)


def memory_left(bench: Bench) -> None:
    """GPU memory that a trial leaves behind does not reach the next one."""
    results = bench.run(
        f"{TRIALS}:leaves_memory",
        {"x": {"grid_search": [0, 1]}},
        resources={"cpu": 1, "gpu": 1, "max_concurrent_trials": 1},
    )
    a, b = (trial.reports[-1].metrics for trial in results.trials)
    found = f"{b['before']} bytes, process {'the same' if a['process'] == b['process'] else 'another'}"
    bench.holds("a trial leaves 256 MiB behind", "0 bytes, process another", found, b["before"] == 0)


def ranks(bench: Bench) -> None:
    """Two processes of a trial on one GPU."""
    results = bench.run(
        f"{TRIALS}:seen_by_ranks",
        {"x": {"grid_search": [0]}},
        resources={"cpu": 1, "gpu": 0.5, "workers": 2},
    )
    (trial,) = results.trials
    found = str(trial.failures[0] if trial.failures else trial.reports[-1].metrics.get("backend"))
    bench.holds("two processes of a trial on one GPU", "gloo, as NCCL refuses it", found, found == "gloo")
    config = {"epochs": 1 if bench.rehearsed else 4, "dropout": 0.0}
    losses = []
    for workers in (1, 2):
        trained = bench.run(
            "trainables.digits:train",
            {"lr": {"grid_search": [0.1]}},
            params=config,
            objective={"metric": "val_loss", "mode": "min"},
            resources={"cpu": 1, "gpu": 1 / workers, "workers": workers},
        )
        (trial,) = trained.trials
        losses.append([report.metrics["train_loss"] for report in trial.reports])
    apart = max((abs(a - b) for a, b in zip(*losses, strict=True)), default=float("nan"))
    bench.holds("`digits`, losses of two processes and of one", "equal to 1e-5", f"{apart:.1e} apart", apart < 1e-5)
