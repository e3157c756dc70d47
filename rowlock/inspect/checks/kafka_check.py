"""Check that Kafka answers, and what answers at its address instead."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from rowlock.errors import CommandError
from rowlock.views.kafka import KafkaView
from schemas.config.addresses import is_loopback
from schemas.config.model import KafkaConfig
from schemas.io.endpoints import KAFKA_BROKER, explain_wrong_service, parse_bootstrap_addresses
from schemas.problems import Problem

TRIAL_BROKER = "`python -m deploy.embedded up --kafka --keep broker` starts a broker and prints its address"


class KafkaAnswer(NamedTuple):
    """The answer of Kafka to a check."""

    topics: tuple[str, ...] = ()
    """All that the cluster has."""
    problem: Problem | None = None
    """Why Kafka does not answer; None: it does."""


def ask_kafka(kafka: KafkaConfig) -> KafkaAnswer:
    """Return the topics of Kafka, or why it does not answer."""
    try:
        with closing(KafkaView(kafka)) as view:
            return KafkaAnswer(tuple(view.list_topics()))
    except CommandError as error:
        return KafkaAnswer(problem=explain_unreached_kafka(kafka, error))


def explain_unreached_kafka(kafka: KafkaConfig, error: CommandError) -> Problem:
    """Return why Kafka does not answer: another server at its address, or else `error`."""
    addresses = parse_bootstrap_addresses(kafka.bootstrap)
    others = [other for host, port in addresses if (other := explain_wrong_service(host, port, KAFKA_BROKER))]
    if others:
        return Problem("; ".join(others), "correct kafka.bootstrap")
    if not all(is_loopback(host) for host, _ in addresses):
        return error.problem
    remedy = f"{error.problem.remedy}; to try rowlock on this machine: {TRIAL_BROKER}"
    return replace(error.problem, remedy=remedy)
