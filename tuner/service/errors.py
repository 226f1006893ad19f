"""Errors of the service, and their answers over HTTP: `{"error": {"message", "exit_status", "problems"}}`."""

from __future__ import annotations

import http
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tuner.documents.errors import FailureProblem
from tuner.documents.service import ErrorAnswer, ErrorText
from tuner.errors import MOST_PROBLEMS, EnvironmentFailure, InputError, Place, Problem, TunerError
from tuner.redaction import redacted
from tuner.service.tokens import TokenRefused
from tuner.storage.folder import reason


class NotAllowed(InputError):
    """The user may not do this."""


class NoSuchSearch(InputError):
    """The service knows no search of this name."""


class NameTaken(InputError):
    """There is another search of this name."""


class TooLarge(InputError):
    """The body of a request has too many bytes."""


class TooMany(EnvironmentFailure):
    """The user asks too often, or for too much at once."""

    def __init__(self, text: str, wait_s: float) -> None:
        """``wait_s``: after so many seconds it is worth another try."""
        super().__init__(text)
        self.wait_s = wait_s


STATUS: dict[type[BaseException], int] = {
    TokenRefused: 401,
    NotAllowed: 403,
    NoSuchSearch: 404,
    NameTaken: 409,
    TooLarge: 413,
    InputError: 422,
    TooMany: 429,
    EnvironmentFailure: 503,
    OSError: 503,
}
"""The status of HTTP for each class of errors; a class that is not here has that of its base."""


RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorAnswer, "description": http.HTTPStatus(code).phrase}
    for code in (401, 403, 404, 409, 413, 422, 429, 503)
}
"""For the description of routes."""


def answer(error: TunerError | OSError) -> JSONResponse:
    """The answer that tells of ``error``."""
    kinds = type(error).__mro__
    status = next(STATUS[kind] for kind in kinds if kind in STATUS)
    headers = {}
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(max(1, round(error.wait_s + 0.5)))
    if isinstance(error, TokenRefused):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, OSError):
        return _answer(f"the storage fails: {reason(error)}", EnvironmentFailure.exit_status, status, headers)
    problems = error.problems if isinstance(error, InputError) else ()
    return _answer(str(error), error.exit_status, status, headers, problems)


def _answer(
    text: str, exit_status: int, status: int, headers: dict[str, str], problems: tuple[Problem, ...] = ()
) -> JSONResponse:
    found = [FailureProblem.of(problem) for problem in problems[:MOST_PROBLEMS]]
    body = ErrorAnswer(error=ErrorText(message=redacted(text), exit_status=exit_status, problems=found))
    return JSONResponse(body.model_dump(), status, headers)


def install(app: FastAPI) -> None:
    """Lets ``app`` answer every error in one form."""

    @app.exception_handler(OSError)
    @app.exception_handler(TunerError)
    def _told(request: Request, error: TunerError | OSError) -> JSONResponse:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    def _wrong_body(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(InputError([_problem(details) for details in error.errors()]))

    @app.exception_handler(HTTPException)
    def _of_the_framework(request: Request, error: HTTPException) -> JSONResponse:
        return _answer(str(error.detail), InputError.exit_status, error.status_code, dict(error.headers or {}))

    @app.exception_handler(Exception)
    def _bug(request: Request, error: Exception) -> JSONResponse:
        return _answer("the service failed; its log has the reason", TunerError.exit_status, 500, {})


def _problem(details: dict[str, Any]) -> Problem:
    where, *keys = details["loc"]
    told = details["msg"].removeprefix("Value error, ")
    return Problem(Place(f"the {where} of the request"), ".".join(map(str, keys)), told)
