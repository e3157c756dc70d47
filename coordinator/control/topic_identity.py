"""Tells whether the control topic is still the one that this coordinator has read. Pure.

A Kafka whose data were removed has no control topic, or one that was created again with another id. Its
offsets are no later terms: agents and readers would take what is written there for older than what they know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MISSING_S = 10.0
"""A topic counts as deleted if it is missing for so long. A broker that has just started may not know all
topics yet."""


@dataclass(frozen=True, slots=True)
class ControlTopicIdentity:
    """The control topic as Kafka has described it."""

    id: str = ""
    """"" until it is known."""
    missing_since: float | None = None
    """When Kafka first answered that there is no such topic; None: it is there."""
    is_another: bool = False
    """Whether Kafka has described a topic with another id."""

    def record_answer(self, found: str | None, now: float) -> ControlTopicIdentity:
        """Return the identity after an answer of Kafka: the topic's id; None: there is no such topic."""
        if found is None:
            missing_since = now if self.missing_since is None else self.missing_since
            return replace(self, missing_since=missing_since)
        if self.id and found != self.id:
            return replace(self, is_another=True)
        return ControlTopicIdentity(found)

    def explain_loss(self, now: float) -> str | None:
        """Return what has happened to the topic that was read; None: nothing is known to have happened."""
        if self.is_another:
            return "was deleted and created again"
        if self.id and self.missing_since is not None and now - self.missing_since >= MISSING_S:
            return "is gone"
        return None
