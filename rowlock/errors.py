"""Errors that end a command with exit code 2. The message contains the cause, the evidence and the remedy."""

from __future__ import annotations

from schemas.problems import ProblemError

KAFKA_REMEDY = "start the broker, or correct kafka.bootstrap and kafka.options"


class CommandError(ProblemError):
    """A command cannot continue."""


class KafkaUnreachableError(CommandError):
    """No broker of `kafka.bootstrap` answers, or it refuses this client."""

    @staticmethod
    def from_reason(bootstrap: str, seen: str) -> KafkaUnreachableError:
        """Return the error about the brokers of `bootstrap`. `seen`: what was tried, and happened."""
        return KafkaUnreachableError(f"Kafka at {bootstrap} does not answer: {seen}", KAFKA_REMEDY)


class NoLeaderError(CommandError):
    """No coordinator took the command."""


class NoListenerError(NoLeaderError):
    """No coordinator took the command, and nothing listens at the address that was asked last."""
