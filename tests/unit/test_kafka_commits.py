"""A commit whose answer is not known is reported as such: a caller that took it for a "no" would write again
what must not be written twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from consumer.errors import CommitUnknownError, TransientError
from consumer.ordering.model import LaneProgress, UnitState
from consumer.targets.batches import BatchCommitted, BatchFenced, ProgressChange, TableCleared
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.store.state import KnownUnit, ProgressRecord
from consumer.targets.kafka.target import KafkaTarget
from schemas.wire.position import ZERO
from tests.kits.kafka_target import UNIT, target_config

LANE = LaneProgress(0, 1, 1, "id", 4, ZERO, 1, "{}")
NO_BROKER = TransientError("no broker answers")
FENCED = WriterFencedError("another producer has it")


class Steps:
    """A target without a broker: what beginning a producer and committing come to, one after another; None:
    it goes well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, Exception | None]) -> None:
        self.left = list(steps)
        self.known = KnownUnit(ProgressRecord((LANE,), UnitState(None, None, None), commits=7))
        self.target = KafkaTarget(target_config(SimpleNamespace(bootstrap="nowhere:1"), "feed"))
        monkeypatch.setattr(self.target, "_require_current_writer", self._begin)
        monkeypatch.setattr(self.target, "_commit_records", self._commit)

    def _begin(self, *_: object) -> Any:
        self._take("begin")
        return SimpleNamespace(known=self.known)

    def _commit(self, _unit: object, _writer: object, after: KnownUnit, _records: object) -> None:
        self._take("commit")
        self.known = after

    def _take(self, what: str) -> None:
        expected, error = self.left.pop(0)
        assert expected == what
        if error is not None:
            raise error

    def apply(self) -> object:
        return self.target.apply_changes(UNIT, [], ProgressChange([LANE], [LANE]))


@pytest.mark.parametrize(
    "steps",
    [
        [("begin", None), ("commit", FENCED), ("begin", NO_BROKER)],
        [("begin", None), ("commit", FENCED), ("begin", FENCED), ("begin", NO_BROKER)],
        [("begin", None), ("commit", FENCED)] * 8,
    ],
    ids=["no broker", "fenced at its begin, too", "again and again"],
)
def test_who_was_fenced_in_a_commit_and_learns_nothing_does_not_know_whether_it_happened(
    steps: list[tuple[str, Exception | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommitUnknownError):
        Steps(monkeypatch, *steps).apply()


@pytest.mark.parametrize(
    "steps",
    [
        [("begin", NO_BROKER)],
        [("begin", FENCED)] * 8,
        [("begin", None), ("commit", NO_BROKER)],
        [("begin", None), ("commit", FENCED), ("begin", None), ("commit", NO_BROKER)],
    ],
    ids=["no broker", "always fenced before", "not committed", "it is seen that the first did not happen"],
)
def test_what_did_not_happen_is_tried_again(
    steps: list[tuple[str, Exception | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TransientError) as raised:
        Steps(monkeypatch, *steps).apply()
    assert not isinstance(raised.value, CommitUnknownError)


def test_a_commit_that_is_fenced_and_tried_again_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, ("begin", None), ("commit", FENCED), ("begin", None), ("commit", None))
    assert steps.apply() == BatchCommitted()
    assert (steps.left, steps.known.commits) == ([], 8)


def test_who_is_fenced_within_a_truncate_writes_no_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    target = KafkaTarget(target_config(SimpleNamespace(bootstrap="nowhere:1"), "feed"))
    pages = iter([["first"], ["second"], ["third"]])
    records = SimpleNamespace(yield_clear_records=lambda *_: pages)
    written: list[object] = []

    def committed(
        _unit: object, _changes: object, _ways: object, page: object, _progress: object
    ) -> BatchFenced:
        written.append(page)
        return BatchFenced("another epoch")

    monkeypatch.setattr(target, "_tables", SimpleNamespace(get_opened_topic=lambda _: (records, None)))
    monkeypatch.setattr(target, "_list_schemes", lambda *_: [])
    monkeypatch.setattr(target, "_commit_changes", committed)
    table: Any = None
    outcome = target.apply_changes(UNIT, [TableCleared(table, None)], ProgressChange([LANE], [LANE]))
    assert (outcome, written) == (BatchFenced("another epoch"), [["first"]])
