"""The logs of all followed tables as one log: `SourceLog` and `ConsumedLog` of producer/sources/protocols.py.

A poll reads the beginning of each table's log, and then looks at the catalog. Rows of a table that has
changed by then are not published but read again under its new definition. A poll has two numbers
(producer/sources/oracle/mlog.py): the findings of the look have the first one, the rows the second one,
as a transaction of their own. Only rows that Kafka has are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from producer.errors import TableStoppedError
from producer.sources.changes import Boundary, Evidence, LogMoment, TransactionHeader
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.definitions import OracleDefinitions
from producer.sources.oracle.mlog import STEP, compute_next_poll
from producer.sources.oracle.poll import CatalogWatcher, LogPart, LogReader, PolledLogs
from producer.sources.oracle.purge import LogPurger
from producer.sources.oracle.rows import FILE, OracleRows
from producer.sources.oracle.session import OracleSession
from producer.sources.protocols import NOTHING_PUBLISHED, LogChange, PublishedRows
from schemas.wire.records import StoredPosition

POLL_ROWS = 5000
"""Rows of one table's log that a poll reads."""
_PAUSE = 0.2
"""Seconds between polls if the last one read everything."""
_PollState = Literal["idle", "running", "delivered"]


class PollPace(NamedTuple):
    """The size and pace of polls, and their clock.

    `rows`: rows of a table's log that a poll reads. `pause`: seconds between polls. `seconds`: a clock.
    `wait`: waits for a number of seconds.
    """

    rows: int = POLL_ROWS
    pause: float = _PAUSE
    seconds: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep


class OracleLog:
    """The logs of all followed tables.

    `begun_poll`: the number of the last poll that has begun; readers of chunks read it from their
    threads. `complete_ms`: the source time up to which everything was read that the server had committed;
    a poll that leaves rows behind does not change it.
    """

    delivered, objects_changed = None, (0, 0)

    def __init__(
        self,
        session: OracleSession,
        catalog: OracleCatalog,
        definitions: OracleDefinitions,
        record: StoredPosition,
        captured: Callable[[str, str], bool],
        *,
        pace: PollPace,
    ) -> None:
        self._catalog, self._definitions, self._pace = catalog, definitions, pace
        self._following = following = definitions.following
        following.begin_capture(record.proof, captured)
        self._reader = LogReader(session, following, pace.rows)
        self._purger = LogPurger(session, catalog, following)
        self._looks = CatalogWatcher(catalog, following, NOTHING_PUBLISHED)
        self._number = self.begun_poll = record.pos
        self._settled = self._noted = record.proof
        self._taken: list[OracleRows] = []
        self._due = pace.seconds()
        self._server_id = record.identity.server_id
        self._poll: _PollState = "idle"
        self.outstanding = False
        self.moment = LogMoment(FILE, record.pos, record.ts_ms)
        self.complete_ms = record.ts_ms

    # --- deletion

    def learn_published(self, published: PublishedRows) -> None:
        """Delete what Kafka has, and continue after all numbers that an earlier process may have used."""
        self._number = self.begun_poll = compute_next_poll(
            self._number, published.highest, captured_before=published.captured_before
        )
        self._purger.purge_published(published)
        self._looks = CatalogWatcher(self._catalog, self._following, published)
        bare = [name for name in published.bare if name not in self._following.tables]
        self._definitions.take_up_again({name: published.tables[name] for name in bare})

    def purge_published(self) -> Iterator[TableStoppedError]:
        """Delete what the poll has published, and the old rows that must not be published."""
        yield from self._purger.purge_polled(self._taken)
        self._taken.clear()
        self._purger.purge_old_rows()
        self.outstanding = False

    # --- reading

    def read_changes(self, timeout: float) -> Iterator[LogChange | None]:
        if self._poll == "delivered":  # one that was broken off stays "running"
            self._poll = "idle"
        if not self._is_due(timeout):
            return
        self._taken.clear()
        number = self.begun_poll = self._number
        ts_ms, fresh = self._catalog.read_server_time()  # before the logs: they have all commits until then
        found, more, waits = self._reader.read_logs()
        look = self._looks.examine_catalog(fresh)
        self._poll = "running"
        self.moment = LogMoment(FILE, number, ts_ms)
        changed = yield from self._looks.yield_statements(look, _build_header(self._server_id, number, ts_ms))
        self.moment = LogMoment(FILE, number + 1, ts_ms)
        header = _build_header(self._server_id, number + 1, ts_ms)
        kept = {name: rows for name, rows in found.items() if name not in changed}
        yield from self._publish_rows(kept, header, whole=not more)
        self._poll = "idle"
        self._number = number + STEP
        whole = [name for name, part in kept.items() if isinstance(part, LogPart) and part.whole]
        self._following.mark_brought(whole, self._number)
        self._due = self._pace.seconds() + (0 if more else self._pace.pause)
        if not (more or waits or changed):
            self.complete_ms = ts_ms
        if changed or self.outstanding:
            self._poll = "delivered"
            yield Boundary(header._replace(ts_ms=self.complete_ms), FILE, number + STEP)
        else:
            self._settled = self._following.list_proofs()

    def _is_due(self, timeout: float) -> bool:
        left = self._due - self._pace.seconds()
        if left > 0:
            self._pace.wait(min(left, timeout))
        return self._pace.seconds() >= self._due

    def _publish_rows(
        self, found: PolledLogs, header: TransactionHeader, *, whole: bool
    ) -> Iterator[LogChange]:
        """Yield rows, numbered over all tables.

        Set `outstanding` from the first row on, and while a log has old rows.
        """
        first = 0
        for name, rows in found.items():
            changes = (
                rows
                if isinstance(rows, TableStoppedError)
                else self._reader.build_changes(name, rows, whole=whole)
            )
            if isinstance(changes, OracleRows):
                changes.set_position(header, first)
                first += len(changes.changes)
                self._taken.append(changes)
                self.outstanding = True
            if changes is not None:
                yield changes
        self.outstanding = self.outstanding or self._following.has_old

    @property
    def unrecorded(self) -> bool:
        return self._following.unrecorded

    def confirm_recorded(self) -> None:
        self._following.confirm_proofs(self._noted)

    # --- calls of the loop

    @property
    def heard(self) -> bool:
        """True if the last poll has delivered something."""
        return self._poll == "delivered"

    @property
    def inside(self) -> bool:
        """True if a poll has begun and its changes are not all delivered."""
        return self._poll == "running"

    begun = inside

    @property
    def point(self) -> tuple[str, int]:
        return FILE, self._number

    def record_transaction_end(self, boundary: Boundary) -> None:
        self._settled = self._following.list_proofs()

    def keep_evidence(self, file: str, pos: int) -> None:
        self._noted = self._settled

    def find_evidence(self) -> Evidence:
        return Evidence(self._noted, None)

    def record_position_count(self, rows: int) -> None: ...
    def skip_uncaptured(self, rows: object) -> None: ...  # rows without an event are not deleted
    def close(self) -> None: ...


def _build_header(server_id: int, number: int, ts_ms: int) -> TransactionHeader:
    return TransactionHeader(FILE, number, ts_ms, server_id, None)
