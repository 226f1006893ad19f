"""Coroutines in tests. A browser of other tests keeps an event loop in the main thread, where no second one may run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """What ``coroutine`` returns, in a loop of a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
