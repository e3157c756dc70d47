"""What follows from the answers to a commit: only a refusal by name says that it did not happen."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.errors import CommitUnknownError, TargetConfigError, TransientError
from consumer.ordering.model import ApplyUnit
from consumer.targets.kafka.clients import make_unit_producer
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.store.state import UNKNOWN_UNIT
from consumer.targets.kafka.writer import UnitWriter, build_transactional_id
from schemas.config.model import KafkaTargetConfig, load_config

CONFIG = KafkaTargetConfig.model_construct(prefix="p")


class Answering:
    """A producer whose commit is answered so."""

    def __init__(self, answer: Exception) -> None:
        self._answer = answer

    def init_transactions(self, _s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def flush(self, _s: float) -> int:
        return 0

    def commit_transaction(self, _s: float) -> None:
        raise self._answer


def answer(code: int, *, abort: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "said", False, False, abort))


@pytest.mark.parametrize(
    ("reported", "kind"),
    [
        (answer(KafkaError.UNKNOWN, abort=True), CommitUnknownError),
        (answer(KafkaError._TIMED_OUT, abort=False), CommitUnknownError),
        (SystemError("a callback failed"), CommitUnknownError),
        (answer(KafkaError.PRODUCER_FENCED, abort=False), WriterFencedError),
        (answer(KafkaError.INVALID_TXN_STATE, abort=True), WriterFencedError),
        (answer(KafkaError.NOT_ENOUGH_REPLICAS, abort=True), TransientError),
    ],
)
def test_only_a_refusal_by_name_says_that_a_commit_did_not_happen(
    monkeypatch: pytest.MonkeyPatch, reported: Exception, kind: type[Exception]
) -> None:
    monkeypatch.setattr("consumer.targets.kafka.writer.make_unit_producer", lambda *_: Answering(reported))
    writer = UnitWriter(CONFIG, ApplyUnit("pipe", "topic"), 1, lambda: UNKNOWN_UNIT)
    with pytest.raises(TransientError) as caught:
        writer.commit_records([], UNKNOWN_UNIT)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("lease", "transaction", "call"),
    [(None, 9500, 8550), (30, 10_000, 9000), (4, 3800, 3420), (1, 1000, 900)],
)
def test_no_transaction_is_open_for_longer_than_the_lease(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lease: float | None, transaction: int, call: int
) -> None:
    path = tmp_path / "rowlock.yaml"
    section = {} if lease is None else {"coordination": {"lease_s": lease, "interval_s": lease / 4}}
    source = {"type": "mariadb", "host": "h", "user": "u", "password": "", "tables": ["bank.*"]}
    target = {"type": "kafka", "bootstrap": "k:1", "prefix": "feed"}
    pipeline = {"sources": ["s"], "target": "t", "routes": [{"from": "bank.*", "to": "head.{table}"}]}
    whole = {
        "kafka": {"bootstrap": "k:1"},
        "sources": {"s": source},
        "targets": {"t": target},
        "pipelines": {"p": pipeline},
    }
    path.write_text(json.dumps(whole | section))
    found = load_config(path, {}).targets["t"]
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "consumer.targets.kafka.clients.open_producer", lambda settings, **_: made.append(settings)
    )
    make_unit_producer(
        cast(KafkaTargetConfig, pickle.loads(pickle.dumps(found))), "id", 1
    )  # as a worker gets it
    assert [
        made[0][name] for name in ("transaction.timeout.ms", "message.timeout.ms", "socket.timeout.ms")
    ] == [transaction, call, call]


def test_a_broker_that_allows_no_such_transactions_is_told_how_long_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        def init_transactions(self, _s: float) -> None:
            raise KafkaException(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, "said"))

        abort_transaction = purge = close = lambda *_: None

    monkeypatch.setattr("consumer.targets.kafka.writer.make_unit_producer", lambda *_: Refusing())
    with pytest.raises(
        TargetConfigError, match=r"timeout 9\.5 s.* cannot be started.* raise its transaction"
    ):
        UnitWriter(CONFIG, ApplyUnit("pipe", "topic"), 1, lambda: UNKNOWN_UNIT)


def test_no_two_units_have_one_transactional_id() -> None:
    ids = {
        build_transactional_id(KafkaTargetConfig.model_construct(prefix=prefix), ApplyUnit(pipeline, topic))
        for prefix in ("a", "a.b", "a.", "a.b.c")
        for pipeline in ("b", "c", "b-c")
        for topic in ("c.x", "x", "b.c.x", "c")
    }
    assert len(ids) == 4 * 3 * 4
    assert all(each.startswith("a.") for each in ids), "the rights of a prefix cover them"
