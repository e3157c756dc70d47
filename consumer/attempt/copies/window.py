"""Finds the keys that the events of a range of a topic leave existing. Without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from consumer.attempt.readers.reader import KeysRead, ReaderItem, RowBatch, Truncated
from consumer.ordering.model import RowChange, TargetTable
from consumer.tables.router import make_key_function
from schemas.table.model import Key, Row

NoteKey = Callable[[Key, bool], None]
"""(key, whether its last event leaves a row)."""


def note_changes(
    changes: Iterable[RowChange],
    key_of: Callable[[Row], Key],
    note: NoteKey,
    inside: Callable[[Row], bool] = lambda _: True,
) -> None:
    """Pass to `note` every key that `changes` remove or set, in their order.

    `inside`: returns whether the target should contain such a row at all.
    """
    for change in changes:
        before, after = change.before, change.after
        if after is None:
            if before is not None:
                note(key_of(before), False)
            continue
        if before is not None:  # also of the same key: for "==", -0.0 equals 0.0
            note(key_of(before), False)
        note(key_of(after), inside(after))


class KeyWindow:
    """The keys that exist by the accepted events after the offset `since`, with the offset of each key's
    last event.

    An attempt keeps a window while a copy runs: the windows of chunks overlap, so events that it has
    read itself need not be read again.
    """

    def __init__(self, target: TargetTable, since: int) -> None:
        self.since = since
        self._key_of = make_key_function(target)
        self._last: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def note_taken(self, taken: ReaderItem) -> None:
        """Take an item of the reader, in topic order."""
        if isinstance(taken, RowBatch):
            for change in taken.changes:
                self._offset = change.id[0]
                note_changes((change,), self._key_of, self._note_key)
        elif isinstance(taken, KeysRead):
            self._last.update(dict.fromkeys(taken.keys, taken.mark[0]))
        elif isinstance(taken, Truncated):
            self._last.clear()

    def _note_key(self, key: Key, exists: bool) -> None:
        if exists:
            self._last[key] = self._offset
        else:
            self._last.pop(key, None)

    def list_living_keys(self, since: int) -> list[Key]:
        """Return the keys that exist by the events after `since`, and move the window's begin there.

        `since` must not be lower than the window's own.
        """
        self.since = since
        self._last = {key: offset for key, offset in self._last.items() if offset > since}
        return list(self._last)
