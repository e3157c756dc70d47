"""The access check in front of the REST interface: it judges a request by its headers before any body is
read.

A framework reads a request's body before it checks the sender, so an unauthenticated client could make a
coordinator hold hundreds of megabytes. Here a request without access, or with a body larger than any
command's, is answered at once and its connection is closed. The body of any other request is read, whole
and bounded, and passed on.
"""

from __future__ import annotations

import asyncio

from fastapi import Request
from pydantic import SecretStr
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.rest import problems
from coordinator.rest.access import check_rest_access

#: The most bytes of a body; the longest command is a name.
BODY_LIMIT = 64 << 10
#: Seconds in which a body must have arrived.
BODY_S = 10.0
_SECURED = ("/v1", "/metrics")


class RequestGuard:
    """ASGI middleware around `app`. `token`: required of requests under /v1 and /metrics; None: none, for
    this machine only.
    """

    def __init__(self, app: ASGIApp, token: SecretStr | None, *, body_s: float = BODY_S) -> None:
        self._app = app
        self._token = token
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            self._check_headers(request)
            body = await self._read_body(receive)
        except HTTPException as refused:
            headers = {**(refused.headers or {}), "Connection": "close"}
            answer = problems.build_problem_response(
                request, refused.status_code, refused.detail, headers=headers
            )
            await answer(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay_body(body, receive), send)

    def _check_headers(self, request: Request) -> None:
        """Raise HTTPException for what the headers alone forbid."""
        if request.scope["path"].startswith(_SECURED):
            check_rest_access(self._token, request)
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise HTTPException(400, f"Content-Length is {length[:40]!r}, which is no number of bytes")
        if int(length) > BODY_LIMIT:
            raise _build_too_large_error(f"{length} bytes")

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the whole body, also of a request without a length; None: the client has disconnected."""
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self._body_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > BODY_LIMIT:
                        raise _build_too_large_error(f"more than {BODY_LIMIT} bytes")
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self._body_s:g} s") from None
        return b"".join(parts)


def _build_too_large_error(seen: str) -> HTTPException:
    return HTTPException(413, f"the request has a body of {seen}; a command has at most {BODY_LIMIT}")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns `body` once, and then what follows it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return waiting.pop() if waiting else await receive()

    return give
