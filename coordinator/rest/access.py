"""Who may ask: a bearer token; without one, only programs of this machine (the configuration allows that on loopback alone).

Without a token a web page in somebody's browser must not be able to use the loopback interface: the `Host` must be this
machine's (a rebound DNS name is not), and a request that carries an `Origin` must come from here.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from schemas.addresses import SYSTEM, is_loopback, other_system

_BEARER = HTTPBearer(auto_error=False, description="`coordination.token` of the configuration.")


def access(token: SecretStr | None) -> Callable[..., None]:
    """Return the dependency that lets a request through, or raises HTTPException 401 or 403."""
    expected = token.get_secret_value().encode() if token else b""
    return _with_token(expected) if expected else _from_here


def _with_token(expected: bytes) -> Callable[..., None]:
    def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        shown = given.credentials.encode() if given else b""
        if not hmac.compare_digest(shown, expected):
            seen = "the token is wrong" if shown else "no token was given"
            raise HTTPException(
                401,
                f"{seen}; send `Authorization: Bearer` with coordination.token of the configuration",
                {"WWW-Authenticate": "Bearer"},
            )

    return check


def _from_here(request: Request) -> None:
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise HTTPException(403, f"asked as {host!r}; without a token only 127.0.0.1, ::1 and localhost")
    if origin is not None and urlsplit(origin).netloc != host:
        raise HTTPException(403, f"a page of {origin} may not ask; set coordination.token")


def same_system(prefix: str) -> Callable[..., None]:
    """Return the dependency that raises HTTPException 421 for a request that names another system's Kafka prefix."""

    def check(request: Request) -> None:
        why = other_system(prefix, request.headers.get(SYSTEM, ""))
        if why is not None:
            raise HTTPException(421, why)

    return check
