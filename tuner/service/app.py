"""The service over HTTP: REST below ``/v1``, pages for people, metrics for Prometheus, all behind one door."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import FastAPI, Request

from tuner.errors import InputError
from tuner.experiment.spec import check_name
from tuner.installed import versions
from tuner.live import app as live
from tuner.live import metrics
from tuner.live.figures import FollowedRuns
from tuner.live.searches import SearchRow, rows_of, searches_routes
from tuner.runs.loading import is_run, runs
from tuner.service import api, errors, pages
from tuner.service.auth import Door, user_of
from tuner.service.interface import Queue
from tuner.service.limits import Limits
from tuner.service.tokens import Tokens
from tuner.storage.folder import LONGEST_NAME, RunFolder


def create_app(
    queue: Queue,
    tokens: Tokens,
    storage: RunFolder,
    limits: Limits = Limits(),  # noqa: B008
    mlflow: str | None = None,
) -> FastAPI:
    """The application that `tuner serve` runs.

    Args:
        queue: The searches.
        tokens: Who may ask.
        storage: Of the run folders.
        limits: What one user may do.
        mlflow: The MLflow server of searches that name none.

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
    rest = api.Api(queue, storage, mlflow)

    def found(name: str) -> RunFolder | None:
        """Any run of the storage: everybody on the team may look."""
        try:
            folder = storage / check_name(name)
        except ValueError:
            return None
        return folder if len(name) <= LONGEST_NAME and is_run(folder) else None

    def may_control(request: Request) -> str | None:
        user = user_of(request)
        try:
            return user if rest.may_control(user, request.path_params["name"]) else None
        except InputError:  # a run that no search of the queue made
            return None

    followed = FollowedRuns()

    def rows() -> Iterator[list[SearchRow]]:
        yield rows_of(queue.entries(), followed.latest)  # after a start the journals take a while
        yield rows_of(queue.entries(), followed.read(runs(storage))[0])

    app.include_router(api.routes(rest))
    app.include_router(pages.routes(tokens))
    app.include_router(live.run_routes(found, may_control))
    app.include_router(searches_routes(rows, lambda: queue.status().problem))
    app.include_router(metrics.router(lambda: runs(storage), queue, followed))
    app.add_middleware(Door, tokens=tokens, limits=limits)
    return app
