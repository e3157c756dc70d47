"""Messages of TDSQL's JSON subscription as a text for people, without values of rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from producer.sources.tdsql_json.literals import mask_literal
from producer.sources.tdsql_json.messages import SUBSCRIBED_ROW_EVENTS, SubscribedEvent

_MOST_SHOWN = 6
_MOST_LITERALS = 8


def format_sample(events: Sequence[SubscribedEvent]) -> str:
    """Return the first and the last events, with masked literals, and statements by their first words."""
    shown = [_format_event(event) for event in events]
    if len(shown) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        shown = [*shown[:half], f"… {len(shown) - _MOST_SHOWN} more …", *shown[-half:]]
    return "; ".join(shown)


def _format_event(event: SubscribedEvent) -> str:
    place = f"{event.index} {event.event}"
    if event.event in SUBSCRIBED_ROW_EVENTS:
        images = f"where {_format_image(event.before)} field {_format_image(event.after)}"
        return f"{place} {event.db}.{event.table} {images}"
    words = [word for word in event.sql.split(maxsplit=2)[:2] if word.isalpha()]
    return f"{place} {' '.join(words)} …" if event.sql else place


def _format_image(literals: Sequence[str | None]) -> str:
    shown = [mask_literal(literal) for literal in literals[:_MOST_LITERALS]]
    return f"[{', '.join(shown)}{', …' if len(literals) > _MOST_LITERALS else ''}]"
