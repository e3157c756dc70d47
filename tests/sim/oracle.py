"""The model's Oracle: tables with materialized view logs by the documented rules, in memory, reached
through the `OracleDriver` of producer/sources/oracle/session.py.

It answers the statements of producer/sources/oracle/sql.py by their text. Writers draw numbers when they
write, and are seen when they commit, so that numbers do not follow commits. ROWIDs are given again.
Statements are counted, so that capture can be killed before or after a certain one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from producer.sources.oracle.session import OracleDriver
from tests.stands.oracle_source import OWNER, KilledError

Kind = Literal["whole", "keys", "lob", "scn"]
Rows = list[tuple[Any, ...]]
TABLE = "a"
KEYS = 8
START_MS = 1_795_608_000_000
"""2026-11-25, noon."""
_SECOND = 1 << 30
"""Of RAC's instances the second one's numbers are all above the first one's."""
_LOG = f"MLOG$_{TABLE}"
_HIDDEN = ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")


class ModelError(Exception):
    """What the driver raises."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(SimpleNamespace(code=code, full_code=f"ORA-{code:05d}", message=message))


class Logged(NamedTuple):
    """A row of the log. `version`: None where the log has keys only; `scn`: of its transaction's commit,
    where the log has that."""

    sequence: int
    dml: str
    old_new: str
    xid: int
    id: int
    version: int | None
    scn: int = 0


@dataclass
class Session:
    """An application's open transaction: what it changed, its rows of the log, and the keys that it holds
    locked."""

    xid: int
    build_changes: list[tuple[int, int | None]] = field(default_factory=list)
    read_logs: list[Logged] = field(default_factory=list)

    @property
    def locked(self) -> set[int]:
        return {id_ for id_, _ in self.build_changes}


class ModelOracle:
    """One table with its log. `committed`: numbers of all rows that it ever had; `old`: of those that a table
    had when it was taken up. `kind`: what the log has. `notified`: called before each statement and
    commit of capture, and after its deletes and commits."""

    def __init__(self, rng: random.Random, kind: Kind) -> None:
        self.rng, self.kind = rng, kind
        self.rows: dict[int, int] = {}
        self.log: dict[str, Logged] = {}
        self.sessions: list[Session] = []
        self.version = self.numbers = self.transactions = self.scn = 0
        self.notified: Callable[[str], None] = lambda _sql: None
        self.meanwhile: Callable[[], None] = lambda: None
        self.fails: Callable[[], bool] = lambda: False
        self.now_ms = START_MS  # goes on with each statement and commit
        self.committed: set[int] = set()
        self.committed_ms: dict[int, int] = {}  # when each of these rows was committed
        self.old: set[int] = set()
        self._free: list[str] = []

    def driver(self) -> OracleDriver:
        return OracleDriver(lambda: Connection(self), ModelError)

    def time(self) -> str:
        """Return the time of the server's clock in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC).replace(tzinfo=None).isoformat()

    # --- applications

    def write(self) -> None:
        """Let one application begin, change something, commit or roll back."""
        draw = self.rng.random()
        if self.sessions and (draw < 0.35 or len(self.sessions) == 3):
            session = self.rng.choice(self.sessions)
            self.sessions.remove(session)
            if draw < 0.28 or len(self.sessions) == 2:
                self.commit(session)
            return
        if draw < 0.6 or not self.sessions:
            self.transactions += 1
            self.sessions.append(Session(self.transactions))
        self.change(self.rng.choice(self.sessions))

    def change(self, session: Session) -> None:
        """Change a row that nobody else has locked: insert, update, delete, or move its key."""
        others = set().union(*(each.locked for each in self.sessions if each is not session))
        free = [id_ for id_ in range(KEYS) if id_ not in others]
        if len(free) < 2:
            return
        one, other = self.rng.sample(free, 2)
        seen = self.rows | dict[int, Any](session.build_changes)
        now, there = seen.get(one), seen.get(other)
        self.version += 1
        if now is None:
            self._log(session, "I", "N", one, self.version)
            session.build_changes.append((one, self.version))
        elif self.rng.random() < 0.5:
            self._log(session, "U", "U", one, now)
            if self.kind != "keys":
                self._log(session, "U", "N", one, self.version)
            session.build_changes.append((one, self.version))
        else:
            self._log(session, "D", "O", one, now)
            session.build_changes.append((one, None))
            if there is None and self.rng.random() < 0.5:  # its key moves
                self._log(session, "I", "N", other, self.version)
                session.build_changes.append((other, self.version))

    def commit(self, session: Session) -> None:
        for id_, version in session.build_changes:
            if version is None:
                self.rows.pop(id_, None)
            else:
                self.rows[id_] = version
        self.scn += 1
        for row in session.read_logs:
            self.log[self._rowid()] = row._replace(scn=self.scn) if self.kind == "scn" else row
            self.committed.add(row.sequence)
            self.committed_ms[row.sequence] = self.now_ms
        self.now_ms += 1

    def settle(self) -> None:
        for session in self.sessions:
            self.commit(session)
        self.sessions.clear()

    def _log(self, session: Session, dml: str, old_new: str, id_: int, version: int) -> None:
        self.numbers += self.rng.randint(1, 3)
        known = None if self.kind == "keys" else version
        of_instance = _SECOND if self.kind == "scn" and session.xid % 2 else 0
        session.read_logs.append(Logged(self.numbers + of_instance, dml, old_new, session.xid, id_, known))

    def _rowid(self) -> str:
        if self._free and self.rng.random() < 0.8:
            return self._free.pop(self.rng.randrange(len(self._free)))
        return f"R{len(self.log) + len(self._free):06d}"

    def forget(self, rowid: str) -> None:
        del self.log[rowid]
        self._free.append(rowid)

    # --- answers

    def answer(self, sql: str, binds: Sequence[Any]) -> Rows:
        """Raises ModelError: it does not know the statement."""
        self.now_ms += 1
        for pattern, reply in _ANSWERS:
            if (match := re.search(pattern, sql)) is not None:
                return reply(self, match, binds)
        raise ModelError(900, f"the model does not know {sql}")

    def columns(self) -> Rows:
        own = [
            ("id", "NUMBER", 10),
            ("version", "NUMBER", 18),
            *([("note", "CLOB", None)] if self.kind == "lob" else []),
        ]
        logged = own[:1] if self.kind == "keys" else own[:2]
        rows: Rows = [
            (OWNER, table, name, type_, 22, 0, digits, None if digits is None else 0,
            "N" if name == "id" else "Y", "NO", None)
            for table, columns in ((TABLE, own), (_LOG, logged))
            for name, type_, digits in columns
        ]  # fmt: skip
        return rows + [(OWNER, _LOG, name, "NUMBER", 22, 0, None, None, "Y", "NO", None) for name in _HIDDEN]

    def options(self) -> Rows:
        new, scn = ("NO" if self.kind == "keys" else "YES", "YES" if self.kind == "scn" else "NO")
        return [(OWNER, TABLE, _LOG, "YES", "YES", new, scn, "NO")]

    def log_rows(self, limit: int) -> Rows:
        found = sorted(self.log.items(), key=lambda each: (each[1].scn, each[1].sequence))[:limit]
        values = (
            (lambda row: (str(row.id),))
            if self.kind == "keys"
            else (lambda row: (str(row.id), str(row.version)))
        )
        return [
            (rowid, row.sequence, row.dml, row.old_new, str(row.xid), row.scn, *values(row))
            for rowid, row in found
        ]

    def places(self) -> Rows:
        """Whoever asks takes the table up: these rows may be deleted unread."""
        self.old.update(row.sequence for row in self.log.values())
        return [(rowid, row.sequence) for rowid, row in self.log.items()]

    def image(self, id_: int) -> tuple[Any, ...]:
        version = self.rows[id_]
        return (str(id_), str(version), *([f"n{version}"] if self.kind == "lob" else []))

    def chunk(self, after: int, limit: int) -> Rows:
        return [self.image(id_) for id_ in sorted(self.rows) if id_ > after][:limit]


_ANSWERS: list[tuple[str, Callable[[ModelOracle, re.Match[str], Sequence[Any]], Rows]]] = [
    (r"FROM V\$DATABASE", lambda *_: [("4711", "1", "PDB1")]),
    (r"FROM PRODUCT_COMPONENT", lambda *_: [("19.0.0.0.0",)]),
    (r"FROM GV\$INSTANCE", lambda o, *_: [(2 if o.kind == "scn" else 1,)]),
    (r"SYSTIMESTAMP", lambda o, *_: [(o.time(), "2026-11-25T11:59:58")]),
    (r"FROM ALL_MVIEW_LOGS", lambda o, *_: o.options()),
    (r"FROM ALL_OBJECTS", lambda *_: [(OWNER, name, "TABLE", i, 10 + i, "2026-11-01T00:00:00", "2026") for i,
     name in enumerate((TABLE, _LOG))]),
    (r"FROM ALL_SUMDELTA", lambda *_: []),
    (r"FROM ALL_TAB_COLS", lambda o, *_: o.columns()),
    (r"FROM ALL_CONSTRAINTS", lambda *_: [(OWNER, TABLE, "PK", "P", "id")]),
    (r"FROM ALL_INDEXES", lambda *_: []),
    (r"FROM ALL_POLICIES", lambda *_: []),
    (r"FROM ALL_BASE_TABLE_MVIEWS", lambda *_: []),
    (r"NUM_ROWS FROM ALL_TABLES", lambda *_: [(None,)]),
    (r"FROM ALL_TABLES", lambda *_: [(OWNER, TABLE), (OWNER, _LOG)]),
    (r"""DMLTYPE.*FROM "BANK"."MLOG\$_a" l.*FIRST (\d+) ROWS""", lambda o, found,
     _: o.log_rows(int(found[1]))),
    (r"""DMLTYPE.*FROM "BANK"."MLOG\$_a" l WHERE""",
     lambda o, _, binds: [row for row in o.log_rows(1 << 20) if row[6] in set(map(str, binds))]),
    (r"""^SELECT ROWIDTOCHAR.*FROM "BANK"."MLOG\$_a" l FETCH""", lambda o, *_: o.places()),
    (r"""FROM "BANK"."a" l (WHERE .*)?ORDER BY.*FIRST (\d+) ROWS""",
     lambda o, found, binds: o.chunk(int(binds[0]) if binds else -1, int(found[2]))),
    (r"""FROM "BANK"."a" l WHERE""", lambda o, _,
     binds: [o.image(int(id_)) for id_ in binds if int(id_) in o.rows]),
]  # fmt: skip


class Connection:
    """Reads see what is committed when they begin; deletes come true at the commit."""

    def __init__(self, oracle: ModelOracle) -> None:
        self._oracle = oracle
        self._deleted: list[str] = []

    def cursor(self) -> Cursor:
        return Cursor(self._oracle, self._deleted)

    def commit(self) -> None:
        self._oracle.notified("COMMIT")
        for rowid in self._deleted:
            self._oracle.forget(rowid)
        self._deleted.clear()
        self._oracle.notified("COMMITTED")

    def rollback(self) -> None:
        self._deleted.clear()

    def close(self) -> None:
        self._deleted.clear()


class Cursor:
    def __init__(self, oracle: ModelOracle, deleted: list[str]) -> None:
        self._oracle, self._deleted = oracle, deleted
        self._rows: Rows = []
        self.rowcount = -1

    def execute(self, sql: str, binds: Sequence[Any] = ()) -> None:
        self._oracle.notified(sql)
        self._oracle.meanwhile()
        self._rows = self._oracle.answer(sql, binds)

    def executemany(self, sql: str, binds: Sequence[Sequence[Any]]) -> None:
        self._oracle.notified(sql)
        if self._oracle.fails():
            raise ModelError(3113, "end-of-file on communication channel")
        assert sql.startswith('DELETE FROM "BANK"."MLOG$_a" WHERE ROWID = :1 AND "SEQUENCE$$" = :2'), sql
        log, missing = self._oracle.log, self._deleted
        found = [
            rowid for rowid,
            sequence in binds if rowid in log and log[rowid].sequence == sequence and rowid not in missing
        ]  # fmt: skip
        self._deleted += found
        self.rowcount = len(found)
        self._oracle.notified("DELETED")

    def fetchall(self) -> Rows:
        return self._rows

    def close(self) -> None: ...


def killed_at(number: int) -> Callable[[str], None]:
    """Kill capture at the `number`-th moment that it tells."""
    left = [number]

    def notified(_sql: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    return notified
