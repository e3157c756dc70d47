"""Errors of capture, by what follows from them. Every message says who is to blame, what was seen, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.wire.records import SNAPSHOT_COMPLETE


class CaptureError(Exception):
    """Root of all errors of this package that a person sees."""


class TransientSourceError(CaptureError):
    """The source cannot be reached just now, or went silent: reconnect with backoff."""


class DeliveryError(CaptureError):
    """Kafka did not take a message. The producer is purged and destroyed; the unit restarts from its stored position."""


class SourceRefusedError(CaptureError):
    """The source is not as capture needs it (settings, grants, another server, purged log): a person must act."""


class SupersededError(SourceRefusedError):
    """Another process has captured the source since: this one ends, and nobody has to act."""


class KafkaRefusedError(CaptureError):
    """Kafka is not as capture needs it (partition count, message size, authorisation): a person must act."""


class StreamStoppedError(CaptureError):
    """The log holds something that would be lost or misread if the stream went on."""


class TableStoppedError(CaptureError):
    """Something concerns these tables that cannot be followed; every other table goes on.

    `tables`: None means every captured table of the source. `cause`: one of producer.stops.CAUSES. `reason`: what was
    seen, a sentence; `remedy`: what to do.
    """

    def __init__(
        self, tables: frozenset[tuple[str, str]] | None, cause: str, reason: str, remedy: str
    ) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.tables = tables
        self.cause = cause
        self.reason = reason
        self.remedy = remedy
        self.parts: tuple[TableStoppedError, ...] = (self,)

    @classmethod
    def merge_errors(cls, errors: Sequence[TableStoppedError]) -> TableStoppedError | None:
        """Return one error that stands for all of `errors` (its `parts`); None: there are none."""
        if not errors:
            return None
        first = errors[0]
        joined = cls(None, first.cause, first.reason, first.remedy)
        joined.parts = tuple(part for error in errors for part in error.parts)
        return joined


class ConfigError(CaptureError):
    """An option that would break a guarantee."""


class SnapshotFinishedError(Exception):
    """`snapshot: only`: everything is read and acknowledged."""

    def __str__(self) -> str:
        return SNAPSHOT_COMPLETE
