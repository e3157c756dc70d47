"""Finds topics that have lost events since the position record was written: topics that were deleted,
created again, or cut at their end. Pure.

1. An anchor holds the id of the topic and the last offset that Kafka acknowledged there. A topic with
   another id, or one that ends earlier, has a hole that no later event shows.
2. A table with such a topic is stopped at the start, before any of its rows is sent, and only a copy
   continues it. All other tables are unaffected.
3. It is not stopped if a copy of the whole table has begun in the topic as it is now: capture may have
   written there before it noticed the loss.
4. Positions of the topic stay above everything it ever had (`Anchor.highest`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from producer.errors import TableStoppedError
from producer.start.topic_recovery import TopicFindings
from producer.tables import TableName
from schemas.findings import format_copy_remedy
from schemas.wire.records import Anchor


class TopicLoss(NamedTuple):
    """A loss of a topic's events.

    `is_new`: the topic is another one; otherwise its last records are missing.
    """

    reason: str
    is_new: bool


def find_topic_loss(
    topic: str, anchors: Collection[Anchor], topic_id: str, end: int, *, created: bool
) -> TopicLoss | None:
    """Return what the topic has lost since `anchors` were stored; None: nothing.

    `topic_id`: its present id; "": not known. `end`: its next offset. `created`: this start created it.
    """
    if not anchors:
        return None
    if created:
        return TopicLoss(f"topic {topic} was deleted, and capture has created it again", True)
    former = next((each.topic_id for each in anchors if each.topic_id not in ("", topic_id)), "")
    if former and topic_id:
        reason = f"topic {topic} was deleted and created again (its id was {former} and is {topic_id})"
        return TopicLoss(reason, True)
    last = max(each.end for each in anchors)
    if end <= last:
        reason = f"topic {topic} has lost its last records: offset {last} was written, and it ends at {end}"
        return TopicLoss(reason, False)
    return None


def note_topic_loss(found: TopicFindings, loss: TopicLoss, anchors: Mapping[TableName, Anchor]) -> None:
    """Note in `found`, which was read without `anchors`, which tables have lost events."""
    for name, anchor in anchors.items():
        if anchor.highest is not None:
            found.raise_ceiling(anchor.highest)
        if not _has_copy_begun(found, loss, name, anchor):
            found.lost[name] = loss.reason


def _has_copy_begun(found: TopicFindings, loss: TopicLoss, name: TableName, anchor: Anchor) -> bool:
    begun = found.find_last_copy(name)
    if begun is None or begun.mark.keys or begun.mark.partial:
        return False
    return loss.is_new or anchor.highest is None or begun.position > anchor.highest


def build_lost_events_stop(name: TableName, reason: str) -> TableStoppedError:
    """Return the stop of a table whose topic has lost events."""
    return TableStoppedError(frozenset([name]), "topic-lost", reason, format_copy_remedy(*name))
