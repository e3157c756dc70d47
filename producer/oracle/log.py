"""The logs of all followed tables as one log: `SourceLog` and `UsedUpLog` of producer/source.py.

A poll reads the beginning of each table's log, and then looks at the catalogue: what was read of a table that has changed by then is not
published but read again, under what it is now. A poll has two numbers (producer/sources/oracle/mlog.py): at the first stands what the look
found, at the second the rows, a transaction of their own. Deleted is what Kafka has, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from producer.errors import SourceRefusedError, TableStoppedError
from producer.oracle.catalog import OracleCatalog
from producer.oracle.definitions import OracleDefinitions
from producer.oracle.forms import expressions, key_of, log_row_of
from producer.oracle.look import Look, judged, looked_at_closely
from producer.oracle.rows import OracleRows
from producer.oracle.session import Session
from producer.source import Change, Published
from producer.sources.changes import Barrier, Boundary, Evidence, LogMoment, TransactionHeader
from producer.sources.oracle import sql
from producer.sources.oracle.mlog import (
    STEP,
    LogBrokenError,
    LogRow,
    Place,
    next_number,
    purge_plan,
    read,
    twice,
    unpublished,
)
from producer.statements.ddl import TableDdl
from producer.statements.judgement import StatementVerdict
from producer.tables import dotted
from schemas.findings import copy_again, seen_and_remedy
from schemas.table.model import Table
from schemas.wire.records import StoredPosition

TableName = tuple[str, str]
FILE = "mlog.0"
POLL_ROWS = 5000
"""Rows of one table's log that a poll reads."""
_PURGE_ROWS = 1000
_PAUSE = 0.2
"""Seconds between polls that bring nothing more."""


class Pace(NamedTuple):
    """`rows`: of a table's log that a poll reads; `pause`: seconds between polls; `seconds`: a clock; `wait`: for so many seconds."""

    rows: int = POLL_ROWS
    pause: float = _PAUSE
    seconds: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep


class OracleLog:
    """`begun_poll`: the number of the last poll that has begun; readers of chunks ask it from their threads."""

    delivered, objects_changed = None, (0, 0)

    def __init__(
        self,
        session: Session,
        catalog: OracleCatalog,
        definitions: OracleDefinitions,
        record: StoredPosition,
        captured: Callable[[str, str], bool],
        *,
        pace: Pace,
    ) -> None:
        self._session, self._catalog, self._definitions = session, catalog, definitions
        self._following = following = definitions.following
        self._captured, self._pace = captured, pace
        following.restore(record.proof)
        following.captured = captured
        self._number = self.begun_poll = record.pos
        self._settled = self._noted = record.proof
        self._taken: list[OracleRows] = []
        self._defined: Mapping[TableName, Table] = {}
        self._due = pace.seconds()
        self.heard = self.begun = self.inside = False
        self.outstanding = False
        self._server_id = record.identity.server_id
        self.moment = LogMoment(FILE, record.pos, record.ts_ms)

    # --- what is used up

    def learn(self, published: Published) -> None:
        """Delete what Kafka has, and go on behind all that a process before may have numbered."""
        self._number = next_number(self._number, published.highest, again=published.again)
        self.begun_poll = self._number
        logs = self._catalog.logs()
        for name, rows in published.rows.items():
            places = [Place(*row) for row in rows]
            self._following.published[name] = frozenset(place.sequence for place in places)
            if name in logs:
                self._delete(logs[name].log, places)
        self._defined = published.tables
        self._definitions.take_up_again(
            {name: published.tables[name] for name in published.bare if name not in self._following.tables}
        )

    def purge(self) -> Iterator[TableStoppedError]:
        """Delete what the poll published, and what tables had in their logs before they were taken up; counted.

        Yield the stops of tables of which rows were gone: whoever deleted them may have deleted unread ones.
        """
        for rows in self._taken:
            yield from self._purged(rows.table, rows.places)
        self._taken.clear()
        for table in self._following.tables.values():
            if table.old and table.logged is not None:
                self._delete(table.logged.log, table.old)
                table.old, table.settled = frozenset(), True
        self.outstanding = False
        self._settled = self._following.proofs()

    def _purged(self, name: TableName, places: list[Place]) -> Iterator[TableStoppedError]:
        followed = self._following.tables.get(name)
        if followed is None or followed.logged is None or not places:
            return
        log = followed.logged.log
        deleted = self._delete(log, places)
        if deleted != len(places):
            yield TableStoppedError(
                frozenset([name]), "log",
                f"of {len(places)} rows of {dotted(log)}, the log of {dotted(name)}, that capture has published, {len(places) - deleted} were "
                "gone or moved when it deleted them: something else purges or moves the log, and may have taken rows that nobody has read",
                f"end that (DBMS_MVIEW.PURGE_LOG, another consumer, ALTER TABLE … MOVE), and {copy_again(*name)}",
            )  # fmt: skip

    def _delete(self, log: TableName, places: Iterable[Place]) -> int:
        statement = sql.delete_places(log)
        return sum(
            self._session.change_many(statement, batch.places)
            for batch in purge_plan(list(places), _PURGE_ROWS)
        )

    # --- reading

    def read(self, timeout: float) -> Iterator[Change | None]:
        self.heard = False
        if not self._is_due(timeout):
            return
        self._taken.clear()
        number = self.begun_poll = self._number
        found, more = self._logged()
        ts_ms, fresh = self._catalog.now()
        look = self._look(fresh)
        self.moment = LogMoment(FILE, number, ts_ms)
        self.begun = self.inside = True
        changed = yield from self._statements(
            look, TransactionHeader(FILE, number, ts_ms, self._server_id, None)
        )
        self.moment = LogMoment(FILE, number + 1, ts_ms)
        header = TransactionHeader(FILE, number + 1, ts_ms, self._server_id, None)
        yield from self._publish(
            {name: found[name] for name in found if name not in changed}, header, whole=not more
        )
        self.begun = self.inside = False
        self._number = number + STEP
        self._due = self._pace.seconds() + (0 if more else self._pace.pause)
        if self._taken or changed or self.outstanding:
            self.heard = True
            yield Boundary(header, FILE, number + STEP, bool(self._taken))
        else:
            self._settled = self._following.proofs()

    def _is_due(self, timeout: float) -> bool:
        left = self._due - self._pace.seconds()
        if left > 0:
            self._pace.wait(min(left, timeout))
        return self._pace.seconds() >= self._due

    def _logged(self) -> tuple[dict[TableName, list[LogRow] | TableStoppedError], bool]:
        """Return what the logs of followed tables hold, and whether one of them may hold more. One that cannot be read stops its table."""
        found: dict[TableName, list[LogRow] | TableStoppedError] = {}
        more = False
        for name, logged in self._following.known():
            if not self._captured(*name):
                continue
            statement = sql.log_rows(logged.log, expressions(logged), logged.extra, self._pace.rows)
            try:
                raw = self._session.rows(*statement)
                found[name] = list(map(log_row_of(logged), raw))
            except SourceRefusedError as error:
                found[name] = TableStoppedError(
                    frozenset([name]), "log", *seen_and_remedy(f"{dotted(name)}: {error}")
                )
            except (ValueError, ArithmeticError) as error:
                reason = (
                    f"a value in {dotted(logged.log)}, the log of {dotted(name)}, cannot be read ({error})"
                )
                found[name] = TableStoppedError(frozenset([name]), "value", reason, copy_again(*name))
            else:
                more = more or len(raw) >= self._pace.rows
        return found, more

    def _publish(
        self,
        found: dict[TableName, list[LogRow] | TableStoppedError],
        header: TransactionHeader,
        *,
        whole: bool,
    ) -> Iterator[Change]:
        first = 0
        for name, rows in found.items():
            if isinstance(rows, TableStoppedError):
                yield rows
                continue
            changes = self._changes(name, rows, whole=whole)
            if isinstance(changes, TableStoppedError):
                yield changes
            elif changes is not None and changes.changes:
                changes.place(header, first)
                first += len(changes.changes)
                self._taken.append(changes)
                self.outstanding = True
                yield changes
        self.outstanding = self.outstanding or self._following.has_old

    def _changes(
        self, name: TableName, rows: list[LogRow], *, whole: bool
    ) -> OracleRows | TableStoppedError | None:
        followed = self._following.tables.get(name)
        if followed is None or followed.logged is None:
            return None
        log = dotted(followed.logged.log)
        rows = unpublished(rows, followed.old)
        again = twice(rows, self._following.published.get(name, frozenset()))
        try:
            if again is not None:
                raise LogBrokenError(
                    f"SEQUENCE$$ {again.sequence} is published, and is there under another ROWID: the log was moved"
                )
            changes = read(rows, key_of(followed.logged), whole=whole).changes
        except LogBrokenError as error:
            reason = f"{log}, the log of {dotted(name)}, cannot be read on: {error}"
            return TableStoppedError(frozenset([name]), "log", reason, copy_again(*name))
        return OracleRows(followed.logged.table, changes)

    # --- the catalogue

    def _look(self, fresh: str) -> Look:
        """See what has become of the followed tables, and which are to be taken up. After this the rows read before are judged."""
        logs = self._catalog.logs()
        followed = self._following.tables
        new = [name for name in logs if name not in followed and self._captured(*name)]
        segments = self._catalog.segments([*followed, *new], logs)
        close = [name for name, table in followed.items() if looked_at_closely(table, segments.get(name))]
        return Look(fresh, new, segments, self._catalog.survey(close) if close else {})

    def _statements(self, look: Look, header: TransactionHeader) -> Generator[Change, None, set[TableName]]:
        """Yield what has happened to tables otherwise than by DML; returns those of which nothing is published in this poll."""
        changed: set[TableName] = set()
        for name in list(self._following.tables):
            if not self._captured(*name):
                self._following.drop(name)
                continue
            found = judged(name, self._following.tables[name], look, self._defined.get(name))
            if found is None:
                continue
            changed.add(name)
            if isinstance(found, TableStoppedError):
                self._following.drop(name)
                yield found
            else:
                yield Barrier(
                    header,
                    TableDdl("alter", (name,)),
                    found.sql,
                    0,
                    start=header.pos,
                    verdicts=(found.verdict,),
                )
        for name in sorted(look.new):
            changed.add(name)
            yield Barrier(
                header, TableDdl("create", (name,)), f"{dotted(name)} is seen for the first time", 0, start=header.pos,
                verdicts=(StatementVerdict(name, "unknown", "changed"),),
            )  # fmt: skip
        return changed

    # --- what the loop asks and says

    @property
    def point(self) -> tuple[str, int]:
        return FILE, self._number

    @property
    def number(self) -> int:
        """Every poll of a lower number has read what it was to read."""
        return self._number

    def ended(self, boundary: Boundary) -> None:
        self._settled = self._following.proofs()

    def note(self, file: str, pos: int) -> None:
        self._noted = self._settled

    def evidence(self) -> Evidence:
        return Evidence(self._noted, None)

    def counted(self, rows: int) -> None: ...
    def uncaptured(self, rows: object) -> None: ...  # what has no event is not deleted
    def close(self) -> None: ...
