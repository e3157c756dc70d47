"""The result of opening topics of tables."""

from __future__ import annotations

from typing import NamedTuple

from schemas.problems import Problem


class TopicOpenings(NamedTuple):
    """The result of opening tables' topics. A topic in none of the three existed and can be used."""

    created: set[str]
    refused: dict[str, Problem]
    """Topic → why it must not be written."""
    taken: set[str]
    """Topics that Kafka refuses because it considers their names equal to those of other topics."""
