"""Which device and which number format train fastest on this machine."""

from typing import Any, Literal

import torch


def fastest_device() -> torch.device:
    """The GPU that Ray assigned to this trial, if any; else the CPU.

    Returns:
        The device that the model and its data go to.

    Example:
        >>> from tuner.training.device import fastest_device
        >>> fastest_device().type in ("cuda", "cpu")
        True
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fastest_precision(
    device: torch.device, wanted: Literal["auto", "fp32", "bf16"] = "auto"
) -> Literal["fp32", "bf16"]:
    """The meaning of "auto" here: "bf16" (autocast) if the hardware multiplies it, else "fp32".

    Decided from the hardware's abilities and not from a timing, so that all trials on the same
    kind of machine, and a resumed one, compute the same. Tensors are channels_last either way,
    the faster layout for both. Numbers: docs/benchmarks/speed.md.

    Args:
        device: The device that trains, as `fastest_device` gives it.
        wanted: "fp32" or "bf16" to have that one; "auto" to let the hardware decide.

    Returns:
        "fp32" or "bf16".

    Raises:
        ValueError: If `wanted` is none of the three.

    Example:
        >>> import torch
        >>> from tuner.training.device import fastest_precision
        >>> fastest_precision(torch.device("cpu"), wanted="fp32")
        'fp32'
    """
    if wanted not in ("auto", "fp32", "bf16"):
        raise ValueError(f"precision: {wanted!r}; allowed: auto, fp32, bf16")
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    abilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    native = any(abilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16" if native and torch.backends.mkldnn.is_available() else "fp32"  # type: ignore[no-untyped-call]


def device_name(device: torch.device) -> str:
    """The name of a device, to report beside the speed of a training.

    Args:
        device: The device that trains.

    Returns:
        The GPU's name as its driver gives it, or "cpu".

    Example:
        >>> import torch
        >>> from tuner.training.device import device_name
        >>> device_name(torch.device("cpu"))
        'cpu'
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
