"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner.errors import EnvironmentFailure

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    level: Level
    check: str
    found: str
    remedy: str = ""
    """What to do; empty if nothing has to be."""
    status: int = EnvironmentFailure.exit_status
    """The exit status that an error of this kind ends a search with."""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.level:<8} {self.check:<14} {self.found}{remedy}"
