"""The result of opening topics of tables."""

from __future__ import annotations

from typing import NamedTuple


class TopicOpenings(NamedTuple):
    """The result of opening tables' topics. A topic in none of the three existed and can be used."""

    created: set[str]
    refused: dict[str, str]
    """Topic → why nothing may be written to it, "…seen…: remedy"."""
    taken: set[str]
    """Topics that Kafka refuses because their name is the same to it as that of another topic."""
