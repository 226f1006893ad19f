"""Whether the GPU, its driver and torch go together."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tuner.doctor.finding import Finding
from tuner.errors import EnvironmentFailure
from tuner.spec.quantities import format_bytes

TORCH_TIMEOUT_S = 120

_TORCH = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    found = {"version": torch.__version__, "cuda": torch.version.cuda, "available": torch.cuda.is_available()}
    if found["available"]:
        try:
            float((torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")).sum())
            found["names"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            found["free"] = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
        except RuntimeError as error:
            found["broken"] = str(error).splitlines()[0]
    found["warnings"] = [str(w.message).splitlines()[0] for w in caught if "CUDA" in str(w.message)]
print(json.dumps(found))
"""
"""Asked in a process of its own: importing torch takes seconds, and a CUDA context hundreds of MiB."""


def driver_and_torch() -> Finding:
    """NVIDIA's driver and torch's CUDA: both there and of versions that go together, or neither."""
    try:
        driver = _driver()
        torch = _torch()
    except EnvironmentFailure as error:
        return Finding("error", "gpu", str(error), "mend that first: nothing trains without it")
    return judge_gpu(driver, torch)


@dataclass(frozen=True)
class Driver:
    """What nvidia-smi says."""

    gpus: tuple[str, ...]
    cuda: str
    """The newest CUDA that it runs; empty where unknown."""
    problem: str = ""
    """Why it does not answer."""


def judge_gpu(driver: Driver | None, torch: dict[str, Any]) -> Finding:
    """``driver``: None without nvidia-smi. ``torch``: what `_TORCH` prints."""
    has = f"torch {torch['version']}" + (f" for CUDA {torch['cuda']}" if torch["cuda"] else " without CUDA")
    if torch.get("broken"):
        remedy = "install the torch build for this GPU, see https://pytorch.org/get-started/locally"
        return Finding("error", "gpu", f"{has} cannot compute on this GPU: {torch['broken']}", remedy)
    if torch["available"]:
        listed = [
            f"{name}, {format_bytes(free)} free" for name, free in zip(torch["names"], torch["free"], strict=True)
        ]
        return Finding("ok", "gpu", f"{len(listed)} for {has}: {'; '.join(listed)}")
    if driver is None:
        return Finding("ok", "gpu", f"none, no NVIDIA driver; {has} trains on the CPU")
    if driver.problem:
        remedy = "install or restart NVIDIA's driver, or give the container its GPUs (docker run --gpus all)"
        return Finding("error", "gpu", f"nvidia-smi does not answer: {driver.problem}", remedy)
    if not driver.gpus:
        return Finding("ok", "gpu", f"none: nvidia-smi lists no GPU; {has} trains on the CPU")
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        found = f"{len(driver.gpus)}, hidden by CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r}"
        return Finding("warning", "gpu", found, "unset it to train on them")
    if not torch["cuda"]:
        remedy = "install torch with CUDA, see https://pytorch.org/get-started/locally"
        return Finding("warning", "gpu", f"{', '.join(driver.gpus)}, but {has}", remedy)
    why = torch["warnings"][0] if torch["warnings"] else "torch gives no reason"
    if driver.cuda and _version(driver.cuda) < _version(torch["cuda"]):
        why = f"the driver runs CUDA up to {driver.cuda}"
        wheel = f"a torch for CUDA {driver.cuda} or older"
        remedy = f"update NVIDIA's driver to one for CUDA {torch['cuda']}, or install {wheel} (https://pytorch.org)"
    else:
        remedy = "see `nvidia-smi` and `dmesg`; restarting the driver or the machine often helps"
    return Finding("error", "gpu", f"{', '.join(driver.gpus)}, but {has} cannot use it: {why}", remedy)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _driver() -> Driver | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False)
        summary = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Driver((), "", str(error))
    if listing.returncode:
        said = (listing.stdout + listing.stderr).strip().splitlines()
        return Driver((), "", said[0] if said else f"exit status {listing.returncode}")
    names = re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", listing.stdout, re.MULTILINE)
    cuda = re.search(r"CUDA(?: UMD)? Version:\s*([\d.]+)", summary.stdout)
    return Driver(tuple(names), cuda[1] if cuda else "")


def _torch() -> dict[str, Any]:
    """Raises EnvironmentFailure if torch cannot be imported."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=TORCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFailure(f"importing torch and asking for GPUs took over {TORCH_TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise EnvironmentFailure(f"torch cannot be imported: {said[-1] if said else f'status {done.returncode}'}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
