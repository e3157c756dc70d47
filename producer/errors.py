"""Errors of capture, by what follows from them. Every message says who is to blame, what was seen, what to do."""

from __future__ import annotations


class CaptureError(Exception):
    """Root of all errors of this package that a person sees."""


class TransientSourceError(CaptureError):
    """The source cannot be reached just now, or went silent: reconnect with backoff."""


class DeliveryError(CaptureError):
    """Kafka did not take a message. The producer is purged and destroyed; the unit restarts from its stored position."""


class SourceRefusedError(CaptureError):
    """The source is not as capture needs it (settings, grants, another server, purged log): a person must act."""


class KafkaRefusedError(CaptureError):
    """Kafka is not as capture needs it (partition count, message size, authorisation): a person must act."""


class StreamStoppedError(CaptureError):
    """The log holds something that would be lost or misread if the stream went on."""


class ConfigError(CaptureError):
    """An option that would break a guarantee."""
