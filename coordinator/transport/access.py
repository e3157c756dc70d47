"""The metadata of a call: the name of its system, and the token with which an agent without a
certificate authenticates itself.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

from schemas.config.addresses import SYSTEM, explain_other_system

AUTHORIZATION = "authorization"
_BEARER = "Bearer "


def build_call_metadata(system: str, token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call. `system`: the Kafka prefix; `token`: coordination.token; an empty
    one is left out.
    """
    metadata = ((SYSTEM, system),) if system else ()
    return (*metadata, (AUTHORIZATION, _BEARER + token)) if token else metadata


def explain_other_caller_system(system: str, metadata: Iterable[Any]) -> str | None:
    """Return why a caller of another system is refused; None: it belongs to this system, or names none."""
    return explain_other_system(system, _get_metadata(metadata, SYSTEM))


def explain_unknown_caller(token: str, metadata: Iterable[Any]) -> str | None:
    """Return why a caller without `token` is refused; None: it has the token, or none is required.
    Compares in constant time.
    """
    if not token:
        return None
    shown = _get_metadata(metadata, AUTHORIZATION)
    if hmac.compare_digest(shown.encode(errors="replace"), (_BEARER + token).encode()):
        return None
    seen = "the token is wrong" if shown else "no token was given"
    return f"{seen}; set coordination.token (or token_file) to the coordinator's"


def _get_metadata(metadata: Iterable[Any], key: str) -> str:
    return next((str(value) for name, value in metadata if name == key), "")
