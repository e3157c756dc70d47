"""The reasons of quarantine entries (`QuarantineEntry.error`): what a key waits for. Without I/O."""

from __future__ import annotations

import re

import msgspec

from consumer.errors import RefusedError, UniqueViolationError
from consumer.ordering.model import QuarantineEntry

QUEUED_AFTER = "held behind offset"
"""The begin of the error of an entry that is quarantined only because of an earlier entry of its key."""
WAITS_FOR_VALUE = "another row has a unique value of this one"
"""The begin of the error of an entry whose row the target may accept once another row gives up a value."""
_WAITING = re.compile(rf"^{WAITS_FOR_VALUE}(?: at offset (\d+))?: ")


def format_refusal(error: RefusedError, level: int | None = None) -> str:
    """Return the reason of a refused row.

    `level`: the offset at which all lanes were when it was tried; None: they were at different ones, so
    changes before the row's own may have given up the value afterwards.
    """
    if not isinstance(error, UniqueViolationError):
        return str(error)
    at = "" if level is None else f" at offset {level}"
    return f"{WAITS_FOR_VALUE}{at}: {error}"


def is_queued(entry: QuarantineEntry) -> bool:
    """Return whether the entry's event was quarantined without asking the target."""
    return entry.error.startswith(QUEUED_AFTER)


def is_waiting(entry: QuarantineEntry) -> bool:
    """Return whether the entry's row was refused because another row has one of its unique values."""
    return entry.error.startswith(WAITS_FOR_VALUE)


def find_trial_offset(entry: QuarantineEntry) -> int:
    """Return the offset at which a waiting entry's row was tried last; -1: that is not known."""
    match = _WAITING.match(entry.error)
    return -1 if match is None or match[1] is None else int(match[1])


def forget_trial(entry: QuarantineEntry) -> QuarantineEntry:
    """Return a waiting entry as one of which it is not known when its row was tried."""
    return msgspec.structs.replace(entry, error=_WAITING.sub(f"{WAITS_FOR_VALUE}: ", entry.error, count=1))
