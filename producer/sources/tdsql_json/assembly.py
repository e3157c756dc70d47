"""Messages of several sets, interleaved and partly delivered again → complete transactions. Pure.

Invariants (docs/adr/0049-tdsql-json-subscription.md):

1. The rows of a transaction are returned once its end (xid) has been read, all together, in the order of
   `event_index`. A transaction whose end is not known returns no row.
2. After `CoveredGtids` and `resume_offset` were stored and read again, every transaction that is not
   covered is returned, and none that is.
3. A message that is neither the next of its transaction nor a repetition stops the tables that it may
   concern: an item names them.
4. Sets are independent: no message of one set changes what is returned of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from producer.sources.tdsql_json.covered import CoveredGtids
from producer.sources.tdsql_json.messages import (
    BEGIN,
    COMMIT,
    SUBSCRIBED_ROW_EVENTS,
    SubscribedEvent,
    UnreadableEvent,
)
from producer.sources.tdsql_json.sample import format_sample
from schemas.findings import COPY_EACH
from schemas.problems import Problem
from schemas.table.names import TableName


class EventPosition(NamedTuple):
    """The position of an event. Those of one transaction are in order; others' order is that of the topic."""

    set_name: str
    gtid: str
    event_index: int


class AssembledRow(NamedTuple):
    """A row event of a complete transaction. `last`: whether it is the transaction's last."""

    position: EventPosition
    event: SubscribedEvent
    last: bool


class AssembledTransaction(NamedTuple):
    """A complete transaction with its rows in order."""

    set_name: str
    gtid: str
    rows: Sequence[AssembledRow]


class LoggedQuery(NamedTuple):
    """A statement, between the transactions before and after it. Its own `db` and `table` do not show what it
    concerns.
    """

    position: EventPosition
    event: SubscribedEvent


class StoppedScope(NamedTuple):
    """Tables that cannot be followed from here on. `set_name` None: of every set. `tables` None: all."""

    set_name: str | None
    tables: frozenset[TableName] | None
    problem: Problem


class OversizedTransaction(NamedTuple):
    """An open transaction that has just passed the limit. Its messages are still collected."""

    set_name: str
    gtid: str
    messages: int


AssembledItem = AssembledTransaction | LoggedQuery | StoppedScope | OversizedTransaction


class _OpenTransaction:
    """A transaction without its end. `offset`: that of its first message in the topic."""

    __slots__ = ("gtid", "is_stopped", "last_index", "messages", "offset", "query")

    def __init__(self, gtid: str, offset: int) -> None:
        self.gtid = gtid
        self.offset = offset
        self.messages: dict[int, SubscribedEvent] = {}
        """`event_index` → row event, in order."""
        self.query: SubscribedEvent | None = None
        self.last_index = 0
        """The highest `event_index` so far."""
        self.is_stopped = False
        """Whether it has had a message that stopped its tables."""

    def add_row(self, event: SubscribedEvent) -> None:
        self.last_index = event.index
        self.messages[event.index] = event

    def add_query(self, event: SubscribedEvent) -> None:
        self.last_index = event.index
        self.query = event

    def stop_collecting(self) -> None:
        """Forget what was collected: the tables of what follows are stopped, too."""
        self.is_stopped = True
        self.messages.clear()
        self.query = None


class SubscriptionAssembler:
    """Assembles the transactions of one topic with one partition.

    `covered`: set → its covered GTIDs as they were stored; a set that is missing has none. `max_messages`: a
    larger transaction is reported.
    """

    def __init__(self, covered: Mapping[str, str], *, max_messages: int) -> None:
        self._covered = {name: CoveredGtids.parse(text) for name, text in covered.items()}
        self._open: dict[str, _OpenTransaction] = {}
        self._committed: dict[str, _OpenTransaction] = {}
        """Set → its last transaction with rows, to recognise a row that follows its end."""
        self._max_messages = max_messages

    @property
    def resume_offset(self) -> int | None:
        """The lowest offset that is needed again after a restart; None: that of the next message."""
        return min((each.offset for each in self._open.values()), default=None)

    def list_covered(self) -> dict[str, str]:
        """Return the covered GTIDs of each set, to be stored with what was returned until now."""
        return {name: str(gtids) for name, gtids in self._covered.items()}

    def push_event(self, set_name: str, event: SubscribedEvent, offset: int) -> Sequence[AssembledItem]:
        """Return what the next message of the topic completes. `offset`: its place in the topic."""
        transaction = self._open.get(set_name)
        if transaction is not None and transaction.gtid == event.gtid:
            return self._extend_transaction(set_name, transaction, event)
        if event.gtid in self._covered.setdefault(set_name, CoveredGtids()):
            return self._judge_covered_event(set_name, event)
        items = [] if transaction is None else self._close_transaction(set_name, transaction)
        transaction = self._open[set_name] = _OpenTransaction(event.gtid, offset)
        if event.event != BEGIN:  # rows of any table may be missing
            items += self._stop_transaction(
                set_name, transaction, event, "has no begin (gtid)", is_set_stopped=True
            )
        return [*items, *self._extend_transaction(set_name, transaction, event)]

    def push_unreadable(self, set_name: str | None, unreadable: UnreadableEvent) -> Sequence[AssembledItem]:
        """Return what a message stops that cannot be read. `set_name`: of its address, None: not known."""
        return [StoppedScope(set_name, None, unreadable.problem)]

    def _extend_transaction(
        self, set_name: str, transaction: _OpenTransaction, event: SubscribedEvent
    ) -> Sequence[AssembledItem]:
        """Add a message to the set's open transaction, and return what follows from it."""
        kind = event.event
        if kind == BEGIN:  # again: what was collected stays, because a writer may repeat a part only
            return ()
        if transaction.is_stopped:
            return self._pass_stopped_event(set_name, transaction, event)
        if event.index <= transaction.last_index:
            if _is_repetition(transaction, event):
                return ()
            return self._stop_transaction(set_name, transaction, event, "has an event_index twice")
        if kind in SUBSCRIBED_ROW_EVENTS:
            if transaction.query is not None:
                return self._stop_transaction(set_name, transaction, event, "has a row after a statement")
            transaction.add_row(event)
            if len(transaction.messages) == self._max_messages + 1:
                return [OversizedTransaction(set_name, event.gtid, len(transaction.messages))]
            return ()
        if kind == COMMIT:
            return self._commit_transaction(set_name, transaction)
        if transaction.messages or transaction.query is not None:
            return self._stop_transaction(set_name, transaction, event, "has a statement within it")
        transaction.add_query(event)
        return ()

    def _judge_covered_event(self, set_name: str, event: SubscribedEvent) -> Sequence[AssembledItem]:
        """Return the stop of a row that comes after the end of its transaction, and was not in it."""
        committed = self._committed.get(set_name)
        if committed is None or committed.gtid != event.gtid or event.event not in SUBSCRIBED_ROW_EVENTS:
            return ()
        if _is_repetition(committed, event):
            return ()
        problem = _build_stop_problem(set_name, event.gtid, "has a row after its end", [event])
        return [StoppedScope(set_name, frozenset([event.table_name]), problem)]

    def _commit_transaction(self, set_name: str, transaction: _OpenTransaction) -> Sequence[AssembledItem]:
        if not transaction.messages:
            return self._close_transaction(set_name, transaction)
        self._committed[set_name] = transaction
        gtid, last = transaction.gtid, next(reversed(transaction.messages))
        rows = [
            AssembledRow(EventPosition(set_name, gtid, index), event, index == last)
            for index, event in transaction.messages.items()
        ]
        self._forget_transaction(set_name, transaction)
        return [AssembledTransaction(set_name, gtid, rows)]

    def _close_transaction(self, set_name: str, transaction: _OpenTransaction) -> list[AssembledItem]:
        """Return what is left of a transaction without rows, or that another one follows before its end."""
        items: list[AssembledItem] = []
        if transaction.messages:
            last = transaction.messages[next(reversed(transaction.messages))]
            items += self._stop_transaction(set_name, transaction, last, "has another end than xid")
        elif transaction.query is not None:
            items.append(_build_query(set_name, transaction.query))
        self._forget_transaction(set_name, transaction)
        return items

    def _forget_transaction(self, set_name: str, transaction: _OpenTransaction) -> None:
        self._covered.setdefault(set_name, CoveredGtids()).add(transaction.gtid)
        del self._open[set_name]

    def _stop_transaction(
        self,
        set_name: str,
        transaction: _OpenTransaction,
        event: SubscribedEvent,
        why: str,
        *,
        is_set_stopped: bool = False,
    ) -> list[AssembledItem]:
        """Return the stop of the transaction's tables, or of all of the set, and the statements in it."""
        events = [*transaction.messages.values(), event]
        tables = frozenset(each.table_name for each in events if each.event in SUBSCRIBED_ROW_EVENTS)
        items: list[AssembledItem] = [
            _build_query(set_name, each)
            for each in (transaction.query, event)
            if each is not None and each.event not in SUBSCRIBED_ROW_EVENTS and each.sql
        ]
        if tables or is_set_stopped:
            problem = _build_stop_problem(set_name, transaction.gtid, why, events)
            items.append(StoppedScope(set_name, None if is_set_stopped else tables, problem))
        transaction.stop_collecting()
        return items

    def _pass_stopped_event(
        self, set_name: str, transaction: _OpenTransaction, event: SubscribedEvent
    ) -> Sequence[AssembledItem]:
        """Return what a further message of a transaction stops that is stopped already."""
        if event.event == COMMIT:
            return self._close_transaction(set_name, transaction)
        return self._stop_transaction(set_name, transaction, event, "cannot be assembled")


def _is_repetition(transaction: _OpenTransaction, event: SubscribedEvent) -> bool:
    """Return whether the transaction has this event already. The time and the address may be those of another
    server of the set.
    """
    query = transaction.query
    known = (
        query if query is not None and query.index == event.index else transaction.messages.get(event.index)
    )
    return known is not None and (
        known.event, known.db, known.table, known.before, known.after, known.sql,
    ) == (event.event, event.db, event.table, event.before, event.after, event.sql)  # fmt: skip


def _build_query(set_name: str, event: SubscribedEvent) -> LoggedQuery:
    return LoggedQuery(EventPosition(set_name, event.gtid, event.index), event)


def _build_stop_problem(set_name: str, gtid: str, why: str, events: Sequence[SubscribedEvent]) -> Problem:
    return Problem(
        f"transaction {gtid} of set {set_name} {why}, which the vendor does not document; its messages: "
        f"{format_sample(events)}",
        f"report these messages, and {COPY_EACH}",
    )
