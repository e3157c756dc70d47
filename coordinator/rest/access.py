"""Access to REST: a bearer token, or without one only programs of this machine (the configuration allows
that on loopback alone).

Without a token, a web page in a browser must not be able to use the loopback interface: the `Host` must
be this machine's (a rebound DNS name is not), and a request with an `Origin` must come from this
machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Header, HTTPException, Request
from fastapi.security import HTTPBearer
from pydantic import SecretStr

from schemas.config.addresses import (
    ASKED_BY,
    CALLER_KAFKA,
    SYSTEM,
    explain_other_kafka,
    explain_other_system,
    is_loopback,
)

_BEARER = HTTPBearer(auto_error=False, description="`coordination.token` of the configuration.")


def check_rest_access(token: SecretStr | None, request: Request) -> None:
    """Raise HTTPException 401 or 403 for a request that is not allowed. Only the headers are examined."""
    expected = token.get_secret_value().encode() if token else b""
    if expected:
        _with_token(expected, request.headers.get("authorization", ""))
    else:
        _from_here(request)


def has_rest_access(token: SecretStr | None, request: Request) -> bool:
    """Return whether a request is allowed to read everything."""
    try:
        check_rest_access(token, request)
    except HTTPException:
        return False
    return True


def describe_bearer_token(_: Annotated[object, Depends(_BEARER)]) -> None:
    """Add the bearer token to the description of the interface; coordinator/rest/access_check.py checks
    it."""


def _with_token(expected: bytes, authorization: str) -> None:
    scheme, _, given = authorization.partition(" ")
    shown = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
    if not hmac.compare_digest(shown, expected):
        seen = "the token is wrong" if shown else "no token was given"
        raise HTTPException(
            401,
            f"{seen}; send `Authorization: Bearer` with coordination.token of the configuration",
            {"WWW-Authenticate": "Bearer"},
        )


def _from_here(request: Request) -> None:
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise HTTPException(403, f"asked as {host!r}; without a token only 127.0.0.1, ::1 and localhost")
    if origin is not None and urlsplit(origin).netloc != host:
        raise HTTPException(
            403,
            f"web pages of {origin} are refused; set coordination.token, and send it",
        )


def identify_asker(
    request: Request,
    by: Annotated[
        str,
        Header(alias=ASKED_BY, description="Name of the operator who gives the command; the events show it."),
    ] = "",
) -> str:
    """Return the caller: the name that it gives, and its address."""
    printable = "".join(char for char in by[:100] if char.isprintable())
    host = request.client.host if request.client else "an unknown address"
    return f"{printable} at {host}" if printable else host


Asker = Annotated[str, Depends(identify_asker)]


def require_same_system(prefix: str, bootstrap: str = "") -> Callable[..., None]:
    """Return the dependency that raises HTTPException 421 for a request that names another system's
    Kafka prefix, or another Kafka.
    """

    def check(request: Request) -> None:
        given = request.headers
        why = explain_other_system(prefix, given.get(SYSTEM, ""))
        why = why or explain_other_kafka(bootstrap, given.get(CALLER_KAFKA, ""))
        if why is not None:
            raise HTTPException(421, why)

    return check
