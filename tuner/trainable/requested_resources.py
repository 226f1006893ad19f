"""What a trainable itself asks for: ``tune.with_resources``, or ``default_resource_request`` of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_GIB = 2**30
_NAMES = {"CPU": "cpu", "GPU": "gpu"}


def requested(train: Callable[[Any], Any], configs: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The resources of a trial by their names in an experiment file; None where ``train`` asks for none.

    ``configs``: configurations of trials, which the request may depend on. Raises ValueError if it cannot be met:
    all trials of a run get the same, on one node.
    """
    asks = getattr(train, "_resources", None)
    if asks is None:
        return None
    found = [asks(dict(config)) for config in configs] if callable(asks) and not hasattr(asks, "bundles") else [asks]
    bundles = [group.bundles for group in found if group is not None]
    if not bundles:
        return None
    if any(other != bundles[0] for other in bundles) or len(bundles) < len(found):
        raise ValueError("they depend on the configuration, and all trials of a run get the same")
    if len(bundles[0]) > 1:
        raise ValueError(f"they are {len(bundles[0])} bundles, and a trial gets one for each of resources.workers")
    return _named(bundles[0][0])


def _named(bundle: dict[str, float]) -> dict[str, Any]:
    """Ray's names as ours. Ray gives a trial no GPU that it does not ask for."""
    named: dict[str, Any] = {_NAMES[name]: amount for name, amount in bundle.items() if name in _NAMES and amount}
    named.setdefault("gpu", 0)
    if memory := bundle.get("memory"):
        named["memory_gib"] = memory / _GIB
    if custom := {name: amount for name, amount in bundle.items() if name not in (*_NAMES, "memory") and amount}:
        named["custom"] = custom
    return named
