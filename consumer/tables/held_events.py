"""Events that were held under an earlier definition of their table, by the one in force now. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from consumer.errors import RefusedError
from consumer.tables.definition import InForce
from schemas.errors import EnvelopeError
from schemas.table.fills import fill_of
from schemas.table.model import Value
from schemas.wire.codec import decode_event, encode_event


def held_event(in_force: InForce, raw: bytes) -> Any:
    """Decode a held event as `InForce.decode` does; columns that came later have what the source gave to the rows that were there.

    Raises RefusedError: that is not known, or a column has another name now.
    """
    try:
        return in_force.decode(raw)
    except msgspec.DecodeError:
        pass
    try:
        event = decode_event(raw)
        event.before, event.after = (_as_now(in_force, image) for image in (event.before, event.after))
        return in_force.decode(encode_event(event))
    except (EnvelopeError, msgspec.DecodeError) as error:
        raise RefusedError(
            f"the held event cannot be read any more ({error}): copy the table, or skip the event"
        ) from error


def _as_now(in_force: InForce, image: dict[str, Value] | None) -> dict[str, Value] | None:
    if image is None:
        return None
    whole = dict(image)
    for column in in_force.written.columns:
        if column.name in whole:
            continue
        fill = fill_of(column)
        if fill is None:
            raise RefusedError(
                f"the event was held before its table had the column {column.name}, and what the row has there is known to the source "
                "alone: copy the table, or skip the event"
            )
        whole[column.name] = fill.value
    return whole
