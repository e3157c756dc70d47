"""Reading batches ahead: order, errors, bounds, and an end in every case."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from consumer.spark.task import read_ahead


@dataclass(frozen=True)
class Batch:
    number: int
    num_rows: int


class Source:
    """Gives `sizes` as batches; an error behind them, if one is given. Counts what was asked for."""

    def __init__(self, sizes: list[int], error: Exception | None = None) -> None:
        self.sizes, self.error = sizes, error
        self.asked = 0
        self.changed = threading.Condition()
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[Batch]:
        for number, size in enumerate(self.sizes):
            self._ask()
            yield Batch(number, size)
        self._ask()
        if self.error is not None:
            raise self.error

    def _ask(self) -> None:
        with self.changed:
            self.asked += 1
            self.threads.add(threading.get_ident())
            self.changed.notify_all()

    def wait_asked(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.asked >= count, timeout=60)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "read-ahead"]


@pytest.mark.parametrize("sizes", [[], [1], [9, 9, 9], [1, 9, 1, 9, 1], [9] * 50, [0, 0, 9]])
def test_every_batch_comes_once_and_in_order(sizes: list[int]) -> None:
    got = list(read_ahead(Source(sizes), full=9))
    assert [(batch.number, batch.num_rows) for batch in got] == list(enumerate(sizes))


def test_small_batches_need_no_thread() -> None:
    source = Source([1, 2, 3])
    assert len(list(read_ahead(source, full=9))) == 3
    assert source.threads == {threading.get_ident()}


def test_it_reads_while_a_batch_is_in_hand_but_not_without_bounds() -> None:
    source = Source([9] * 10)
    ahead = read_ahead(source, full=9, depth=2)
    assert next(ahead) == Batch(0, 9)
    assert next(ahead) == Batch(1, 9)
    assert source.wait_asked(4)  # two in hand, two read ahead
    assert source.asked == 4
    assert [batch.number for batch in ahead] == list(range(2, 10))


def test_an_error_comes_where_the_batch_would_have_come() -> None:
    ahead = read_ahead(Source([9, 9], error=OSError("the JVM is gone")), full=9)
    assert [next(ahead).number, next(ahead).number] == [0, 1]
    with pytest.raises(OSError, match="the JVM is gone"):
        next(ahead)


def test_closing_ends_the_thread() -> None:
    before = set(readers())
    ahead = read_ahead(Source([9] * 10), full=9)
    next(ahead)
    started = set(readers()) - before
    ahead.close()  # type: ignore[attr-defined]  # a generator
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()
