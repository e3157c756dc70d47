"""The components that a dialect contributes to a session: a connection, a catalog, an applier, and
their assembly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from consumer.errors import TableTooLargeError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.alterations import AlterTable, DropTable
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.sql import Fragment, Params
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.values.packed import PackedSelect

Rows = list[tuple[object, ...]]


class Link(Protocol):
    """One connection. Every method raises only errors of consumer.errors; a lost connection is a
    TransientError.

    Statements use the placeholders of consumer.targets.sql; the link converts them for its driver.
    """

    def connect(self) -> None:
        """Connect when there is no usable connection; otherwise do nothing."""

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        """Begin READ COMMITTED with `text` as first statement and return its rows.

        `lock_wait_s` None: the session's lock wait.
        """

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        """Begin READ COMMITTED and run `fragments` in order; return the rows of each.

        Uses as few round trips as the driver allows.
        """

    def execute(self, text: str, params: Params) -> Rows:
        """Run a statement and return its rows ([] if it has none).

        `affected` is then the number of rows it matched.
        """

    def execute_all(self, fragments: Sequence[Fragment]) -> list[int]:
        """Run statements in order; return the number of rows that each matched.

        Uses as few round trips as the driver allows.
        """

    @property
    def affected(self) -> int: ...

    def commit(self) -> None:
        """Commit. Raises CommitUnknownError when the connection breaks inside."""

    def roll_back(self) -> None:
        """Roll back; never raises, because a connection that cannot roll back is closed."""

    def get_connection_id(self) -> int:
        """Return the server's id of this connection."""

    @property
    def locks(self) -> ServerLocks: ...

    def read_certificate_expiry(self) -> datetime | None:
        """Return when the certificate expires that the server presents; None: without TLS."""

    def ping(self) -> bool: ...

    def close(self) -> None: ...


class SingleStatements:
    """The part of a link whose driver sends each statement in a round trip of its own."""

    def execute_all(self: Link, fragments: Sequence[Fragment]) -> list[int]:
        """See Link."""
        matched = []
        for fragment in fragments:
            self.execute(*fragment)
            matched.append(self.affected)
        return matched


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A connection that holds a lock.

    `seconds`: for how long it has been working; None: this user may not see it.
    """

    connection: int
    user: str
    seconds: int | None = None
    statement: str | None = None
    """What it runs or ran last, without values (consumer.targets.lock_holders.summarize_statement)."""
    program: str = ""
    """The program that it gave when it connected."""


@dataclass(frozen=True, slots=True)
class LockHolders:
    """The connections that hold a lock."""

    found: tuple[LockHolder, ...] = ()
    """The holders; with `guessed`, those that may hold it."""
    guessed: bool = False
    """Whether the server does not show who holds the lock."""
    unseen: str = ""
    """What this user cannot see, with the statement that grants the view."""

    def __bool__(self) -> bool:
        return bool(self.found or self.unseen)


class ServerLocks(Protocol):
    """The locks of a server: finds the holders of what another connection waits for, and ends
    connections.

    Connections are given by their `Link.get_connection_id`.
    """

    def end_blockers_of(self, waiting: int) -> list[int]:
        """End the connections that hold a lock for which connection `waiting` waits. Return their ids."""

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        """Return who holds the lock of `table` that connection `waiting` waits for; empty if it does
        not wait.
        """

    def find_row_holders(self, waiting: int) -> LockHolders:
        """Return who holds the row lock that connection `waiting` waits for; empty if it does not wait."""

    def end_connection(self, connection: int) -> bool:
        """End a connection. Return whether it still existed."""


class TargetCatalog(Protocol):
    """The definitions and plain reads of a dialect's tables, and the server facts that checks read.

    `column_names`: how the server compares names of columns; `table_names`: those of schemas and tables.
    """

    column_names: NameRules

    @property
    def table_names(self) -> NameRules: ...

    def read_table(self, schema: str, name: str) -> Table | None: ...

    def quote_table_name(self, table: TargetTable) -> str:
        """Return the quoted, qualified name."""

    def read_table_facts(self, schema: str, name: str) -> TableFacts: ...

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        """Return the rights that the user certainly lacks of `required`."""

    def find_durability_risk(self) -> Remark | None:
        """Return why a crash of the server may take back commits that readers have seen; None: it may not."""

    def explain_untested_version(self) -> Problem | None:
        """Return that rowlock was not tested with the server's version; None: it was."""

    def create_statements(self, table: Table) -> list[str]:
        """Return the statements that create a table.

        Raises TargetConfigError if the server cannot have it.
        """

    def explain_left_out_indexes(self, table: Table) -> list[Problem]:
        """Return, for each unique index that the statements leave out, the limit of the server."""

    def name_large_columns(self, table: Table, error: TableTooLargeError) -> TableTooLargeError:
        """Return the server's refusal of a definition with the columns that take the most bytes."""

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        """Return the statements after which the server numbers new rows in `column`, and the first number.

        It is `next_number`, or a greater one that no row of the table has. Nothing is changed.
        """

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        """Return "SELECT … FROM …" for the columns of `table`, and a function that converts its rows to
        wire values.
        """

    def select_packed_rows(self, table: TargetTable) -> tuple[str, PackedSelect] | None:
        """Return "SELECT … FROM …" for packed rows of `table`, and their expressions; None: they are not read
        packed.
        """

    def build_key_params(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Sequence[object]]: ...

    def list_key_columns(self, table: TargetTable) -> tuple[str, ...]: ...

    def build_filter(self, table: TargetTable, values: dict[str, str] | None) -> list[Fragment]: ...

    def build_page_conditions(
        self,
        table: TargetTable,
        after: Key | None,
        upto: Key | None = None,
        where: Mapping[str, str] | None = None,
    ) -> list[Fragment]:
        """Return the conditions for the rows after key `after`, and up to `upto`, in the order of
        `build_page_order`, among those that fulfil the filter `where` (`build_filter`).
        """

    def build_page_order(self, table: TargetTable) -> str: ...


class NetChangeApplier(Protocol):
    """Applies net changes in the link's open transaction."""

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        """Apply `net`; return how many rows were written to `rowlock_displaced`.

        `displacing`: None, or the JSON of what is applied. With it, rows of other keys that hold a needed
        unique value make room (`TargetTransaction.apply_net_change` in consumer/targets/session.py).
        """

    def on_transaction_end(self, *, committed: bool) -> None:
        """Note that the transaction ended: what it created exists if `committed`."""

    def forget_table(self, schema: str, name: str) -> None:
        """Discard what was prepared for a table, because the table was changed."""


class TableAlterer(Protocol):
    """Changes tables by a dialect's own statements, and limits how long they wait for the table's lock.

    `transactional`: such a statement commits with its transaction; otherwise each commits by itself.
    """

    transactional: bool

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        """Yield the statements.

        Each must have been executed before the next one is requested: what a later statement depends on
        is read from the real table once an earlier one holds its lock. Raises TargetConfigError.
        """

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        """Return the name that the server uses for a unique index that was added."""

    def extend_lock_wait(self, lock_wait_s: float) -> AbstractContextManager[None]:
        """Set the lock wait for the block, and lift the limit on the duration of statements.

        Both are restored afterwards.
        """


@dataclass(frozen=True)
class DialectComponents:
    """The components of one session, assembled by its dialect.

    `fresh` makes a second connection to the same target.
    """

    link: Link
    books: Bookkeeping
    catalog: TargetCatalog
    applier: NetChangeApplier
    alterer: TableAlterer
    fresh: Callable[[], Link]
