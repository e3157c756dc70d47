"""The sentence about a running system that a new run with the same Kafka and prefix would join."""

from __future__ import annotations

from coordinator.control.codec import Candidate
from rowlock.processes.run import build_agent_name
from schemas.config.model import KafkaConfig


def describe_living_system(kafka: KafkaConfig, leader: Candidate) -> str:
    """Return which system runs with the prefix, and what `rowlock run` beside it does."""
    agent = build_agent_name()
    effect = (
        f"it takes over the units of that run's agent, {agent}"
        if leader.name == agent
        else "it joins that system, and may take over its units and its lead"
    )
    return (
        f"a system with the prefix {kafka.prefix} runs on this Kafka: coordinator {leader.name} leads it "
        f"(http://{leader.rest}). If `rowlock run` starts beside it, {effect}. Stop that system first, or "
        "set another `prefix` under `kafka` for a system of its own"
    )
