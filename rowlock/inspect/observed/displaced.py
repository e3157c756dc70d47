"""The numbers of displaced rows of targets for `rowlock quarantine list`, without their values, which
may be confidential.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowlock.views.target import read_known_topics, target_session
from schemas.config.model import Config


class DisplacedRows(msgspec.Struct, frozen=True):
    """The number of rows in `rowlock_displaced` that events of a topic have displaced."""

    pipeline: str = msgspec.field(name="pipeline")
    target: str = msgspec.field(name="target")
    topic: str = msgspec.field(name="topic")
    rows: int = msgspec.field(name="rows")
    superseded: int = msgspec.field(name="superseded")
    """More such rows, which a copy has since written as the source has them."""

    def as_dict(self) -> dict[str, object]:
        """Return the documented JSON object."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found


def list_displaced_rows(config: Config) -> list[DisplacedRows]:
    """Count the displaced rows in the targets of all pipelines. Raises CommandError."""
    out: list[DisplacedRows] = []
    for pipeline, options in config.pipelines.items():
        with target_session(config.targets[options.target], options.target, "quarantine") as session:
            if not read_known_topics(session, pipeline):
                continue
            rows, done = (
                session.count_displaced_rows(pipeline),
                session.count_displaced_rows(pipeline, superseded=True),
            )
        out += [
            DisplacedRows(pipeline, options.target, topic, rows.get(topic, 0), done.get(topic, 0))
            for topic in sorted({*rows, *done})
        ]
    return out


def format_displaced_lines(found: Sequence[DisplacedRows]) -> list[str]:
    """Return the listing for people."""
    return [
        f"{each.pipeline} {each.topic}: {each.rows} displaced, {each.superseded} more "
        "superseded by a copy (rowlock_displaced)"
        for each in found
    ]
