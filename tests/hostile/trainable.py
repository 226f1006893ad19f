"""What the made-up run folders name as their trainable."""

from __future__ import annotations

from typing import Any


def train(config: dict[str, Any]) -> None:
    """Is only looked at."""
