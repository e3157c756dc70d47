"""A Kafka target on a broker with TLS, users and rights, and on one without transactions: what is documented
is enough, and each refusal names what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer.errors import TargetConfigError, TransientError
from consumer.targets.batches import BatchCommitted
from consumer.targets.dialect import open_target
from consumer.targets.kafka.target import KafkaTarget
from deploy.embedded.ports import pick_port
from schemas.config.model import KafkaTargetConfig
from tests.kits.kafka_target import UNIT, Owner, account, messages, table_of, target_config
from tests.kits.kafka_users import PASSWORD, RIGHTS
from tests.servers.certificates import Authority, Issued
from tests.servers.kafka_relays import OldBroker
from tests.servers.secure_kafka import PLAIN_PASSWORD, PLAIN_USER, Right, SecureKafka

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def broker(certificate: Issued) -> Iterator[SecureKafka]:
    with SecureKafka(certificate) as made:
        yield made


def config(broker: SecureKafka, prefix: str, bootstrap: str, **options: str) -> KafkaTargetConfig:
    return target_config(broker, prefix).model_copy(update={"bootstrap": bootstrap, "options": options})


def user(
    broker: SecureKafka, certificate: Issued, prefix: str, *rights: tuple[Any, Any], **changes: str
) -> KafkaTargetConfig:
    """The configuration of a user who may that with what begins with `prefix`."""
    broker.add_user(prefix, PASSWORD)
    given: list[Right] = [(kind, f"{prefix}.", operation) for kind, operation in rights]
    if given:
        broker.allow(prefix, *given)
    options = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": prefix,
        "sasl.password": PASSWORD, "ssl.ca.location": str(certificate.ca),
    }  # fmt: skip
    return config(
        broker,
        prefix,
        broker.secure,
        **{**options, **{key.replace("_", "."): value for key, value in changes.items()}},
    )


def test_what_is_documented_is_enough(broker: SecureKafka, certificate: Issued, unique: str) -> None:
    owner = Owner(user(broker, certificate, unique, *RIGHTS), table_of(unique))
    assert owner.apply(4, (None, account(1))) == BatchCommitted()
    second = Owner(owner.target._config, owner.table)
    assert second.apply(5, (None, account(2))) == BatchCommitted()
    assert [list(page) for page in second.target.yield_keys(UNIT, second.table, None)] == [[(1,), (2,)]]
    assert len(messages(broker, f"{unique}.acct")) == 2


@pytest.mark.parametrize("missing", RIGHTS, ids=lambda each: f"{each[0].name}-{each[1].name}")
def test_each_right_that_is_missing_is_named(
    missing: tuple[Any, Any], broker: SecureKafka, certificate: Issued, unique: str
) -> None:
    made = user(broker, certificate, unique, *(each for each in RIGHTS if each != missing))
    with pytest.raises(TargetConfigError, match=RIGHTS[missing]):  # noqa: PT012
        Owner(made, table_of(unique)).apply(4, (None, account(1)))
        Owner(made, table_of(unique))  # who reads what is there


def test_a_wrong_password_is_no_broker_that_is_away(
    broker: SecureKafka, certificate: Issued, unique: str
) -> None:
    made = user(broker, certificate, unique, *RIGHTS, sasl_password="nonsense")
    with pytest.raises(
        TargetConfigError, match=r"does not accept the user: correct .*sasl\.password"
    ) as caught:
        open_target(made, name="test")
    assert "nonsense" not in str(caught.value)


def test_a_user_of_sasl_plain(broker: SecureKafka, certificate: Issued, unique: str) -> None:
    broker.allow(PLAIN_USER, *((kind, f"{unique}.", operation) for kind, operation in RIGHTS))
    options = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": PLAIN_USER,
        "sasl.password": PLAIN_PASSWORD, "ssl.ca.location": str(certificate.ca),
    }  # fmt: skip
    owner = Owner(config(broker, unique, broker.secure, **options), table_of(unique))
    assert owner.apply(4, (None, account(1))) == BatchCommitted()
    assert len(messages(broker, f"{unique}.acct")) == 1
    options["sasl.password"] = "nonsense"
    with pytest.raises(TargetConfigError, match=r"does not accept the user: correct .*sasl\.password"):
        open_target(config(broker, unique, broker.secure, **options), name="test")


def test_a_broker_of_an_authority_that_is_not_trusted_is_refused(
    broker: SecureKafka, certificate: Issued, unique: str, tmp_path: Path
) -> None:
    made = user(broker, certificate, unique, *RIGHTS, ssl_ca_location=str(Authority(tmp_path, "another").ca))
    with pytest.raises(TargetConfigError, match=r"TLS with the broker fails: correct .*ssl\.ca\.location"):
        open_target(made, name="test")


def test_nobody_at_the_port_is_a_broker_that_is_away(broker: SecureKafka, unique: str) -> None:
    with pytest.raises(TransientError):
        open_target(config(broker, unique, f"127.0.0.1:{pick_port()}"), name="test")


def test_a_broker_without_transactions_is_refused(broker: SecureKafka, unique: str) -> None:
    with OldBroker(broker.relayed_port, broker.seen_port) as old:
        target = KafkaTarget(config(broker, unique, old.bootstrap))
        target.ensure_bookkeeping()
        with pytest.raises(TargetConfigError, match="the broker has no transactions"):
            target.take_over(UNIT, "id", "{}", 1)
