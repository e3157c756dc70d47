"""A call's metadata: whose system it is, and the token by which an agent proves itself where no certificate does."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

from schemas.config.addresses import SYSTEM, explain_other_system

AUTHORIZATION = "authorization"
_BEARER = "Bearer "


def build_call_metadata(system: str, token: str) -> tuple[tuple[str, str], ...]:
    """Return what a call says. `system`: the Kafka prefix, `token`: coordination.token; "" says nothing of either."""
    said = ((SYSTEM, system),) if system else ()
    return (*said, (AUTHORIZATION, _BEARER + token)) if token else said


def explain_other_caller_system(system: str, said: Iterable[Any]) -> str | None:
    """Return why a caller of another system is refused; None: it is of this one, or does not say."""
    return explain_other_system(system, _get_metadata(said, SYSTEM))


def explain_unknown_caller(token: str, said: Iterable[Any]) -> str | None:
    """Return why a caller is refused that does not bear `token` (compared in constant time); None: it does, or none is asked."""
    if not token:
        return None
    shown = _get_metadata(said, AUTHORIZATION)
    if hmac.compare_digest(shown.encode(errors="replace"), (_BEARER + token).encode()):
        return None
    seen = "the token is wrong" if shown else "no token was given"
    return f"{seen}; set coordination.token (or token_file) to the coordinator's"


def _get_metadata(said: Iterable[Any], key: str) -> str:
    return next((str(value) for name, value in said if name == key), "")
