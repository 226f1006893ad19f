"""These files import frameworks that the everyday environment lacks."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips these files if their tests are deselected anyway."""
    return True if "not integrations" in config.option.markexpr else None
