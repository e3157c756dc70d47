"""Kafka's errors at a target: the unit stops if a person must act, otherwise it retries."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from consumer.errors import TargetConfigError, TransientError
from consumer.targets.kafka.errors import translate_kafka_error

UNTRUSTED = "error:0A000086:SSL routines::certificate verify failed (after 4ms in state SSL_HANDSHAKE)"


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_an_untrusted_certificate_stops_the_unit_under_both_codes(code: int) -> None:
    found = translate_kafka_error(KafkaError(code, UNTRUSTED), "topic t cannot be read")
    assert isinstance(found, TargetConfigError)
    assert "TLS with the broker fails: correct" in str(found)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._BAD_MSG])
def test_brokers_that_do_not_answer_are_asked_again_with_a_remedy(code: int) -> None:
    found = translate_kafka_error(KafkaError(code, "Connection refused"), "topic t")
    assert isinstance(found, TransientError)
    assert found.problem.remedy == "start the brokers, or correct the target's `bootstrap` and `options`"
