"""Server-sent events: a response that does not end, and that gives up clients which do not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager

from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

GIVEN_UP_AFTER_S = 30.0
"""A client that takes nothing for so long is dropped."""

PING_EVERY_S = 10.0
"""A client that hears nothing for much longer knows that its connection is dead."""

PING = "event: ping\ndata:\n\n"

_RETRY_MS = 1000
"""After which a browser connects again."""

Next = Callable[[], "str | None"]
"""The next events as text, None if there are none now; called in another thread."""
Subscribe = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Has a function called, in any thread, whenever there may be a next event."""


class EventStream(StreamingResponse):
    """Events as they come."""

    def __init__(self, next_: Next, subscribe: Subscribe) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._events = _events(next_, subscribe)
        super().__init__(self._events, headers=headers, media_type="text/event-stream")

    async def stream_response(self, send: Send) -> None:
        """Until the client is gone, or does not read."""

        async def in_time(message: Message) -> None:
            async with asyncio.timeout(GIVEN_UP_AFTER_S):
                await send(message)

        async with contextlib.aclosing(self._events):
            with contextlib.suppress(TimeoutError):
                await super().stream_response(in_time)


async def _events(next_: Next, subscribe: Subscribe) -> AsyncGenerator[str, None]:
    loop, is_new = asyncio.get_running_loop(), asyncio.Event()
    yield f"retry: {_RETRY_MS}\n\n"
    with subscribe(lambda: wake(loop, is_new)):
        while True:
            is_new.clear()
            told = await asyncio.to_thread(next_)
            if told is not None:
                yield told
                continue
            try:
                async with asyncio.timeout(PING_EVERY_S):
                    await is_new.wait()
            except TimeoutError:
                yield PING


def wake(loop: asyncio.AbstractEventLoop, is_new: asyncio.Event) -> None:
    """Sets ``is_new``, from any thread."""
    with contextlib.suppress(RuntimeError):  # the server has ended
        loop.call_soon_threadsafe(is_new.set)


def event(id_: str, data: str) -> str:
    """An event; ``data`` is one line."""
    return f"id: {id_}\ndata: {data}\n\n"
