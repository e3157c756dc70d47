"""Rules for the settings of topics in Kafka: a table's topic has one partition and is never compacted.
Pure.
"""

from __future__ import annotations

from schemas.findings import START_OVER
from schemas.problems import Problem

CleanupPolicy = str
"""A topic's `cleanup.policy`: words separated by commas."""


def _set_policy(topic: str, policy: CleanupPolicy) -> str:
    return f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy={policy}"


def explain_compaction_refusal(topic: str, policy: CleanupPolicy) -> Problem | None:
    """Return why events cannot be stored in `topic`; None: the topic is not compacted."""
    if "compact" not in policy:
        return None
    return Problem(
        f"topic {topic} has cleanup.policy={policy}, and compaction removes events "
        "that are needed in their order",
        f"set the policy to delete ({_set_policy(topic, 'delete')})",
    )


def partitions_refusal(topic: str, partitions: int, *, debezium: bool = False) -> Problem | None:
    """Return why a topic with several partitions cannot be applied; None: it has one, or Kafka does not
    show them yet.
    """
    if partitions <= 1:
        return None
    remedy = (
        "delete it, set topic.creation.default.partitions=1 in Debezium's connector, and "
        "let it snapshot the table again"
        if debezium
        else START_OVER
    )
    return Problem(f"{topic} has {partitions} partitions, its events have lost their order", remedy)


def own_policy_refusal(topic: str, policy: CleanupPolicy, required: CleanupPolicy) -> Problem | None:
    """Return why one of rowlock's own topics cannot be used; None: it can.

    `required`: its policy ("compact" or "delete").
    """
    other = "delete" if required == "compact" else "compact"
    if required in policy.split(",") and other not in policy:
        return None
    why = (
        "capture's position would be deleted"
        if required == "compact"
        else "records that are needed would be removed"
    )
    return Problem(
        f"topic {topic} has cleanup.policy={policy}, so {why}",
        f"set the policy to {required} ({_set_policy(topic, required)})",
    )
