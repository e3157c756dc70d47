"""What follows from the answers to a commit: only a refusal by name says that it did not happen."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.errors import CommitUnknownError, TransientError
from consumer.ordering.model import ApplyUnit
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.writer import UnitWriter
from schemas.config.model import KafkaTargetConfig

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
    ("said", "kind"),
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
    monkeypatch: pytest.MonkeyPatch, said: Exception, kind: type[Exception]
) -> None:
    monkeypatch.setattr("consumer.targets.kafka.writer.producer_of", lambda *_: Answering(said))
    writer = UnitWriter(CONFIG, ApplyUnit("pipe", "topic"), 1)
    with pytest.raises(TransientError) as caught:
        writer.commit([])
    assert type(caught.value) is kind
