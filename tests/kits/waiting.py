"""How tests await a condition: often, yet never so that asking takes the processor from what is awaited."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
EVERY_S = 0.05
#: Of the time that passes, asking takes half, where that means no longer pause than the second: some
#: conditions read whole topics.
_REST, _LONGEST_S = 1.0, 0.25


def awaited(condition: Callable[[], T], what: str, seconds: float, every: float = EVERY_S) -> T:
    """Return the first true value of `condition()`; fails naming `what` after `seconds`, which end a hang and
    decide nothing."""
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(max(every, min(_LONGEST_S, _REST * (now - asked))))


def until(condition: Callable[[], Any], what: str, seconds: float = 180) -> Any:
    """Await `condition` and return its value; fails naming `what` after `seconds`."""
    return awaited(condition, what, seconds)
