"""Errors of capture, by their consequences.

Every message contains the object, what was seen, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.problems import ProblemError
from schemas.wire.records import SNAPSHOT_COMPLETE


class CaptureError(ProblemError):
    """The base class of all errors of this package that users see."""


class TransientSourceError(CaptureError):
    """The source cannot be reached now, or was silent: reconnect with backoff."""


class DeliveryError(CaptureError):
    """Kafka did not take a message.

    The producer is purged and destroyed; the unit restarts from its stored position.
    """


class MessageTooLargeError(DeliveryError):
    """Kafka has refused a batch as too large: the topic, or the broker, takes smaller ones only."""


class SourceRefusedError(CaptureError):
    """The source does not meet the requirements of capture (settings, grants, another server, purged
    log): a person must act.
    """


class SupersededError(SourceRefusedError):
    """Another process has captured the source since. This one ends, and no action is needed."""


class KafkaRefusedError(CaptureError):
    """Kafka does not meet the requirements of capture (partition count, message size, authorisation): a
    person must act.
    """


class StreamStoppedError(CaptureError):
    """The log contains something that would be lost or misread if the stream continued."""


class TableStoppedError(CaptureError):
    """Something that cannot be followed affects these tables; the other tables go on.

    `tables`: None means every captured table of the source. `cause`: one of producer.stops.CAUSES.
    `reason`: what was seen, a sentence. `remedy`: what to do.
    """

    def __init__(
        self, tables: frozenset[tuple[str, str]] | None, cause: str, reason: str, remedy: str
    ) -> None:
        super().__init__(reason, remedy)
        self.tables = tables
        self.cause = cause
        self.reason = reason
        self.remedy = remedy
        self.parts: tuple[TableStoppedError, ...] = (self,)

    @classmethod
    def merge_errors(cls, errors: Sequence[TableStoppedError]) -> TableStoppedError | None:
        """Return one error with all of `errors` as its `parts`; None: there are none."""
        if not errors:
            return None
        first = errors[0]
        joined = cls(None, first.cause, first.reason, first.remedy)
        joined.parts = tuple(part for error in errors for part in error.parts)
        return joined


class ConfigError(CaptureError):
    """An option that would break a guarantee."""


class SnapshotFinishedError(Exception):
    """The end of capture with `snapshot: only`: everything is read and acknowledged."""

    def __str__(self) -> str:
        return SNAPSHOT_COMPLETE
