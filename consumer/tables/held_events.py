"""Quarantined events, decoded by the active definition of their table: the row that each leaves.

An event may be of an earlier definition. Without I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from consumer.errors import RefusedError
from consumer.ordering.model import NetChange, QuarantineEntry, format_entry_key, parse_entry_key
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import SNAPSHOT_READ
from consumer.tables.router import make_key_function
from consumer.tables.undecodable import explain_undecodable
from schemas.errors import EnvelopeError
from schemas.findings import format_copy_remedy
from schemas.table.fills import find_fill
from schemas.table.model import Row, Value
from schemas.wire.codec import decode_event, encode_event_value


def build_final_change(active: ActiveDefinition, entries: Iterable[QuarantineEntry]) -> NetChange:
    """Return the change that gives the rows of `entries` (all of one folded key) their state after the
    last of them. Pure.
    """
    entries = sorted(entries, key=lambda each: (each.offset, each.part))
    last = {entry.key: entry for entry in entries}
    images = {key: _decode_image(active, entry) for key, entry in last.items()}
    keys = {text: parse_entry_key(text) for text in images}
    deletes = [keys[text] for text, row in images.items() if row is None]
    rows = {text: row for text, row in images.items() if row is not None}
    new = {entry.key for entry in entries if entry.key in rows and _is_another_row(active, entry)}
    return NetChange(
        active.target,
        deletes=deletes,
        replaces=[row for text, row in rows.items() if text in new],
        snapshot=[row for text, row in rows.items() if text not in new],
    )


def _is_another_row(active: ActiveDefinition, entry: QuarantineEntry) -> bool:
    """Return whether the row of an entry's key after it is another one than before it, or that is not
    known.
    """
    try:
        event = decode_quarantined_event(active, entry.event.encode())
    except RefusedError:
        return True
    return entry.part > 0 or event.op not in ("u", SNAPSHOT_READ)


def _decode_image(active: ActiveDefinition, entry: QuarantineEntry) -> Row | None:
    """Return the row that an entry leaves under its own key; None: no row (a delete, or the first half
    of a key change).
    """
    event = decode_quarantined_event(active, entry.event.encode())
    after, marked = event.after, getattr(event, "undecodable", None)
    _refuse_other_key(active, entry, event)
    if after is None:
        return None
    refuse_other_columns(active, entry)
    if marked is not None and marked.after:
        raise RefusedError(explain_undecodable(active.written, marked.after))
    row = active.row(after)
    key = make_key_function(active.target)(row)
    return row if format_entry_key(key) == entry.key else None


def _refuse_other_key(active: ActiveDefinition, entry: QuarantineEntry, event: Any) -> None:
    """Raise RefusedError if the event is not of the entry's key: the table had another key at that time.

    A row that happens to have the same values in its present key would be deleted.
    """
    key_of, source = make_key_function(active.target), active.source
    keys = [key_of(active.row(image)) for image in (event.before, event.after) if image is not None]
    if entry.key not in map(format_entry_key, keys):
        raise RefusedError(
            f"the key {entry.key} of the quarantined event is not its key by the table's present definition",
            f"copy the table (`{format_copy_remedy(source.db, source.name)}`), or skip the event",
        )


def decode_quarantined_event(active: ActiveDefinition, raw: bytes) -> Any:
    """Decode a quarantined event as `ActiveDefinition.decode` does.

    Columns that were added later get the value that the source gave to existing rows. An image is valid
    for its row only if `refuse_other_columns` accepts it. Raises RefusedError if a column's value is not
    known.
    """
    try:
        return active.decode(raw)
    except msgspec.DecodeError:
        pass
    except EnvelopeError as error:  # Debezium's, and not of the present table
        raise _build_unreadable_error(error) from error
    try:
        event = decode_event(raw)
        event.before, event.after = (_as_now(active, image) for image in (event.before, event.after))
        return active.decode(encode_event_value(event))
    except (EnvelopeError, msgspec.DecodeError) as error:
        raise _build_unreadable_error(error) from error


def _build_unreadable_error(error: Exception) -> RefusedError:
    return RefusedError(
        f"the quarantined event can no longer be read ({error})", "copy the table, or skip the event"
    )


def refuse_other_columns(active: ActiveDefinition, entry: QuarantineEntry) -> None:
    """Raise RefusedError if a name in an entry's image may be another column now: renamed, or dropped
    and added again.

    Its values would silently go to wrong columns or be lost. A definition stored by an older version
    does not contain since when its names are stable; then a name that the table no longer has shows that
    a column was renamed or dropped.
    """
    since = active.stored.columns_stable_since
    if since is not None and entry.offset >= since:
        return
    dropped = _list_dropped_columns(active, entry.event.encode()) if since is None else []
    if since is None and not dropped:
        return
    seen = f": it has no column {', '.join(dropped)} now" if dropped else f" (offset {since})"
    copy_remedy = format_copy_remedy(active.source.db, active.source.name)
    raise RefusedError(
        "columns of the table were renamed or dropped, one of its key was modified, or the table was copied, "
        f"after the event was quarantined{seen}; its values can no longer be matched to columns",
        f"copy the table (`{copy_remedy}`; a running copy also brings the row), or skip the event",
    )


def _list_dropped_columns(active: ActiveDefinition, raw: bytes) -> list[str]:
    """Return the columns of a quarantined event that its table no longer has.

    Debezium's decoder refuses other columns itself.
    """
    try:
        after = decode_event(raw).after
    except EnvelopeError:
        return []
    return sorted({*(after or ())}.difference(active.source.column_names))


def _as_now(active: ActiveDefinition, image: dict[str, Value] | None) -> dict[str, Value] | None:
    if image is None:
        return None
    whole = dict(image)
    for column in active.written.columns:
        if column.name in whole:
            continue
        fill = find_fill(column)
        if fill is None:
            raise RefusedError(
                f"the event was quarantined before its table had the column {column.name}, so "
                "it lacks the row's value there",
                "copy the table, or skip the event",
            )
        whole[column.name] = fill.value
    return whole
