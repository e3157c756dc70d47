"""Proof of definitions that were read from the proxy's catalogue, by later messages of the same set. Pure.

A message's values have no names, and the topic lags behind the source by an unknown time. A definition
that was read at time t holds for the messages that waited for it if one of the same set follows them whose
transaction began after t, with no statement in between that may concern the table: such a statement would
have been executed before t, and then be in the log before that message
(docs/adr/0049-tdsql-json-subscription.md).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from schemas.table.names import TableName


class JudgedDefinition(NamedTuple):
    """A definition that waits no more.

    `is_proven`: whether it holds for the messages that waited for it. If not, these have no definition, and a
    new one has to be read for what follows.
    """

    table: TableName
    is_proven: bool


class DefinitionProofs:
    """The definitions of one set's tables that wait for their proof.

    `clock_difference_s`: seconds by which the clocks of this machine and of the set's servers may differ.
    """

    def __init__(self, clock_difference_s: float) -> None:
        self._clock_difference_s = clock_difference_s
        self._proven_after_s: dict[TableName, float] = {}
        """Table → the time that a transaction must have begun after, by the clock of its server."""

    def add_definition(self, table: TableName, read_s: float) -> None:
        """Wait for the proof of a definition; an earlier one of the table waits no more.

        `read_s`: when the catalogue had answered, by this machine's clock, in seconds since 1970.
        """
        self._proven_after_s[table] = read_s + self._clock_difference_s

    def judge_event(self, begun_s: int, changed: Collection[TableName] | None = ()) -> list[JudgedDefinition]:
        """Return the definitions that the next message of the set proves or refutes.

        `begun_s`: the begin of its transaction. `changed`: the tables that its statement may concern; None:
        it may concern any.
        """
        proven = [table for table, after_s in self._proven_after_s.items() if begun_s > after_s]
        refuted = [
            table
            for table in self._proven_after_s
            if table not in proven and (changed is None or table in changed)
        ]
        for table in (*proven, *refuted):
            del self._proven_after_s[table]
        return [JudgedDefinition(table, is_proven=table in proven) for table in (*proven, *refuted)]
