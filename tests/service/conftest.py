"""A queue of a team's searches, for the tests of the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.fake import FakeCluster
from tests.service.queued import Service
from tuner.service.team import Team
from tuner.storage.folder import RunFolder


@pytest.fixture
def storage(tmp_path: Path) -> RunFolder:
    return RunFolder.at(tmp_path / "runs")


@pytest.fixture
def service(storage: RunFolder) -> Iterator[Service]:
    with Service(storage, FakeCluster(), Team()) as found:
        yield found
    found.cluster.lose_head()
