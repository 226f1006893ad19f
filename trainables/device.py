"""Which device and which number format train fastest on this machine."""

from typing import Literal

import torch


def fastest_device() -> torch.device:
    """The GPU that Ray assigned to this trial, if any; else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fastest_precision(device: torch.device, wanted: str = "auto") -> Literal["fp32", "bf16"]:
    """What "auto" means here: "bf16" (autocast) where the hardware multiplies it, else "fp32".

    Decided from the hardware's abilities and not from a timing, so that all trials on the same
    kind of machine, and a resumed one, compute the same. Tensors are channels_last either way,
    which is the faster layout for both: 506 and 808 images/s in fp32 without and with it, 927 and
    1,438 in bf16 (`cifar` of width 32, batch 256, one thread of an AMD EPYC with AVX512-BF16).
    """
    if wanted in ("fp32", "bf16"):
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    abilities = getattr(torch.cpu, "get_capabilities", dict)()
    native = any(abilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16" if native and torch.backends.mkldnn.is_available() else "fp32"


def device_name(device: torch.device) -> str:
    """The GPU's name as its driver gives it, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
