"""Errors of REST: each is `application/problem+json` (RFC 9457), also those of the framework."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from coordinator.rest.models import Leader, ProblemResponse
from coordinator.server.operators.api import CommandRefusedError, NoAnswerError, NotLeaderError

MEDIA_TYPE = "application/problem+json"
_LOG = structlog.get_logger()
KINDS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    409: "refused",
    413: "too-large",
    421: "another-system",
    422: "invalid",
    503: "not-leader",
    504: "no-answer",
}


class UnknownError(Exception):
    """The object named by the path does not exist."""


def install_problem_handlers(app: FastAPI) -> None:
    """Make `app` answer every error as a problem."""
    app.add_exception_handler(NotLeaderError, _handle_not_leader)
    app.add_exception_handler(CommandRefusedError, _handle_refused)
    app.add_exception_handler(NoAnswerError, _make_handler(504))
    app.add_exception_handler(UnknownError, _make_handler(404))
    app.add_exception_handler(HTTPException, _handle_framework_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(Exception, _handle_unexpected)


def build_problem_response(
    request: Request,
    status: int,
    detail: str,
    *,
    leader: Leader | None = None,
    errors: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem as the answer to `request`."""
    kind = KINDS.get(status, "error")
    problem = ProblemResponse(
        type=f"urn:rowlock:problem:{kind}",
        title=HTTPStatus(status).phrase if kind != "not-leader" else "Not the leader",
        status=status,
        detail=detail,
        instance=request.url.path,
        leader=leader,
        errors=errors,
    )
    left_out = {name for name in ("leader", "errors") if getattr(problem, name) is None}
    if kind == "not-leader":
        left_out.discard("leader")  # null means that no coordinator leads
    content = problem.model_dump(by_alias=True, exclude=left_out)
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _make_handler(status: int) -> Callable[[Request, Exception], JSONResponse]:
    def handle_error(request: Request, error: Exception) -> JSONResponse:
        return build_problem_response(request, status, str(error))

    return handle_error


def _handle_refused(request: Request, error: Exception) -> JSONResponse:
    errors = [str(each) for each in error.problems] if isinstance(error, CommandRefusedError) else []
    return build_problem_response(request, 409, str(error), errors=errors if len(errors) > 1 else None)


def _handle_not_leader(request: Request, error: Exception) -> JSONResponse:
    seen = error.leader if isinstance(error, NotLeaderError) else None
    leader = Leader.model_validate(seen) if seen is not None else None
    return build_problem_response(request, 503, str(error), leader=leader, headers={"Retry-After": "1"})


def _handle_framework_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        return _handle_unexpected(request, error)
    detail = error.detail
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}; GET /v1/openapi.json lists what there is"
    return build_problem_response(request, error.status_code, detail, headers=error.headers)


def _handle_invalid(request: Request, error: Exception) -> JSONResponse:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    errors = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
    return build_problem_response(
        request, 422, "the request does not fit: " + "; ".join(errors), errors=errors
    )


def _handle_unexpected(request: Request, error: Exception) -> JSONResponse:
    where = "".join(traceback.format_exception(error))
    _LOG.error("request failed", path=request.url.path, error=repr(error), traceback=where)
    return build_problem_response(request, 500, "an error in rowlock; the coordinator's log has the details")
