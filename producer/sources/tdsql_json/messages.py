"""Messages of TDSQL's JSON subscription, read into typed structures. Pure.

The format, and the pages that describe each field, are in docs/adr/0049-tdsql-json-subscription.md.
Fields that the vendor does not document are ignored; a documented field of another type makes the
message unreadable.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from schemas.problems import Problem
from schemas.table.names import TableName

LOG_TYPE = "mysqlbinlog"
"""The only documented `logtype`."""
BEGIN, COMMIT, STATEMENT = "gtid", "xid", "query"
SUBSCRIBED_ROW_EVENTS = frozenset({"insert", "update", "delete"})
SUBSCRIBED_EVENTS = SUBSCRIBED_ROW_EVENTS | {BEGIN, COMMIT, STATEMENT}
_GTID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}:[1-9][0-9]*|[0-9]+-[0-9]+-[0-9]+")
_INDEX = re.compile(r"[0-9]+")
_SAMPLE_REMEDY = (
    "the vendor does not document it: report the message (its values are masked here), and capture the "
    "tables in another way"
)


class Address(NamedTuple):
    """The address of the server that logged an event."""

    host: str
    port: int


class SubscribedEvent(msgspec.Struct, gc=False):
    """One message: an event of the log of one server of one set.

    `before` and `after`: a literal for each column, in the order of the table's columns; None: JSON's null.
    Only row events have them, and of those an insert has no `before` and a delete no `after`.
    """

    log_type: str = msgspec.field(name="logtype")
    event: str = msgspec.field(name="eventtypestr")
    """One of SUBSCRIBED_EVENTS."""
    host: str = msgspec.field(name="localip")
    port: int = msgspec.field(name="localport")
    begun_s: int = msgspec.field(name="begintime")
    """The start of the transaction, in seconds since 1970, by the server's clock."""
    gtid: str = msgspec.field(name="gtid")
    index: int = msgspec.field(name="event_index")
    """The event's number within its transaction. It grows, and leaves numbers out."""
    db: str = msgspec.field(name="db", default="")
    table: str = msgspec.field(name="table", default="")
    """The table of a row event. In other events it is that of an earlier event, and means nothing."""
    before: list[str | None] = msgspec.field(name="where", default_factory=list)
    after: list[str | None] = msgspec.field(name="field", default_factory=list)
    sql: str = msgspec.field(name="sql", default="")
    """The statement of a query event."""

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @property
    def table_name(self) -> TableName:
        return self.db, self.table


class UnreadableEvent(NamedTuple):
    """A message that cannot be understood.

    `address`: the server that logged it, every table of whose set it may concern; None: not known, it may
    concern every table of the topic. `problem`: what was seen, without values of rows.
    """

    address: Address | None
    problem: Problem


_DECODER = msgspec.json.Decoder(SubscribedEvent, strict=False)  # numbers are documented as texts, too


def decode_subscribed_event(raw: bytes) -> SubscribedEvent | UnreadableEvent:
    """Return the event of a message, or why it cannot be read."""
    try:
        event = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return UnreadableEvent(_find_address(raw), _build_problem(f"is not in the documented form ({error})"))
    why = _explain_unknown_form(event)
    return event if why is None else UnreadableEvent(event.address, _build_problem(why))


def _explain_unknown_form(event: SubscribedEvent) -> str | None:
    """Return why a message that has the documented fields is not understood; None: it is."""
    if event.log_type != LOG_TYPE:
        return f"has the logtype {event.log_type[:40]!r}"
    if event.event not in SUBSCRIBED_EVENTS:
        return f"has the event {event.event[:40]!r}, in transaction {event.gtid[:60]!r}"
    if _GTID.fullmatch(event.gtid) is None:
        return f"has the GTID {event.gtid[:60]!r}, which is neither uuid:number nor domain-server-number"
    if event.index < 1:
        return f"has the event_index {event.index}"
    if event.event not in SUBSCRIBED_ROW_EVENTS:
        return None
    if not (event.db and event.table):
        return f"is a row event ({event.event}) without a table"
    if bool(event.before) == (event.event == "insert") or bool(event.after) == (event.event == "delete"):
        return (
            f"is the {event.event} of a row of {event.db}.{event.table} with {len(event.before)} values in "
            f"where and {len(event.after)} in field"
        )
    return None


def _build_problem(why: str) -> Problem:
    return Problem(f"a message of the subscription {why}", _SAMPLE_REMEDY)


def _find_address(raw: bytes) -> Address | None:
    """Return the address in a message of an unknown form, if it is one object with an address."""
    try:
        found: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(found, dict):
        return None
    host, port = found.get("localip"), found.get("localport")
    if not isinstance(host, str) or not host or _INDEX.fullmatch(str(port)) is None:
        return None
    return Address(host, int(str(port)))
