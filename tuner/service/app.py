"""The service over HTTP: REST below ``/v1``, pages for people, metrics for Prometheus, all behind one door."""

from __future__ import annotations

from fastapi import FastAPI

from tuner.installed import versions
from tuner.live import metrics
from tuner.runs.loading import runs
from tuner.service import api, errors, pages
from tuner.service.auth import Door
from tuner.service.interface import Queue
from tuner.service.limits import Limits
from tuner.service.tokens import Tokens
from tuner.storage.folder import RunFolder


def create_app(queue: Queue, tokens: Tokens, storage: RunFolder, limits: Limits = Limits()) -> FastAPI:  # noqa: B008
    """The application that `tuner serve` runs.

    Args:
        queue: The searches.
        tokens: Who may ask.
        storage: Of the run folders.
        limits: What one user may do.

    Returns:
        An ASGI application. ``/openapi.json`` describes its REST interface.
    """
    app = FastAPI(
        title="tuner",
        version=versions(("tuner",)).get("tuner", ""),
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # it would send clients to the host that they name
    )
    errors.install(app)
    app.include_router(api.routes(api.Api(queue, storage)))
    app.include_router(pages.routes(queue, tokens))
    app.include_router(metrics.router(lambda: runs(storage), queue))
    app.add_middleware(Door, tokens=tokens, limits=limits)
    return app
