"""The server: it ends in good order, whoever still listens."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.live.servers import running
from tuner.live import http_server
from tuner.live.http_server import Server, listening

WITHIN_S = 60.0


def streaming(begun: threading.Event) -> FastAPI:
    """An app with a stream that does not end, and with what wants the whole body of a request, once it has begun."""
    app = FastAPI()

    async def lines() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        await asyncio.Event().wait()

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.post("/size")
    async def size(request: Request) -> int:
        begun.set()
        return len(await request.body())

    return app


@pytest.mark.parametrize(("requests", "sent"), [(0, b""), (1, b"GET /")])
def test_a_connection_without_a_request_is_closed(requests: int, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 2.0)
    with running(streaming(threading.Event())) as url:
        place = urlsplit(url).hostname, urlsplit(url).port
        slow = http.client.HTTPConnection(*place, timeout=WITHIN_S)
        slow.putrequest("POST", "/size")
        slow.putheader("Content-Length", "4")
        slow.endheaders(b"ab")
        with socket.create_connection(place, WITHIN_S) as idle:
            for _ in range(requests):
                idle.sendall(b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n")
                answer = b""
                while b"Not Found" not in answer.partition(b"\r\n\r\n")[2]:
                    answer += idle.recv(10_000)
            idle.sendall(sent)
            assert idle.recv(1000) == b""
        slow.send(b"cd")
        assert slow.getresponse().read() == b"4", "whoever sent a whole head has more time"
        slow.close()


def test_an_open_stream_ends_whole_and_without_a_word(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with listening("127.0.0.1", 0) as listener:
        started, begun = threading.Event(), threading.Event()
        server = Server(streaming(begun), started.set)
        thread = threading.Thread(target=server.run_at, args=[listener])
        thread.start()
        assert started.wait(WITHIN_S)
        client = http.client.HTTPConnection(*listener.getsockname(), timeout=WITHIN_S)
        client.request("GET", "/events")
        answer = client.getresponse()
        assert answer.readline() == b"data: 1\n"
        upload = http.client.HTTPConnection(*listener.getsockname(), timeout=WITHIN_S)
        upload.putrequest("POST", "/size")
        upload.putheader("Content-Length", "4")
        upload.endheaders(b"ab")
        assert begun.wait(WITHIN_S)
        server.stop()
        assert answer.read() == b"\n", "the stream has its end, so this raises no IncompleteRead"
        upload.send(b"cd")
        assert upload.getresponse().read() == b"4"
        thread.join(WITHIN_S)
        assert not thread.is_alive()
        client.close()
        upload.close()
    assert capfd.readouterr().err == ""
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
