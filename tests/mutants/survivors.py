"""Fresh mutants that no test has to find, and why: `--fresh` names them, and does not count them.

A reason says why the product does the same with the change, or who alone would see a difference.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.mutants.mutant import Mutant


class Survivor(NamedTuple):
    """`old` of `file` becomes `new`, as `tests.mutants.fresh` draws it."""

    file: str
    old: str
    new: str
    why: str


SURVIVORS: tuple[Survivor, ...] = (
    Survivor("consumer/ordering/model.py", "    ts_ms: int = 0", "    ts_ms: int = 1", "only tests leave the field out, and none of them looks at it"),
    Survivor("producer/loop/copy_begins.py", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (1, 0)):", "logs are counted from 1, and a file begins with 4 bytes: no place is that low"),
    Survivor("producer/loop/copy_begins.py", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 1)):", "logs are counted from 1, and a file begins with 4 bytes: no place is that low"),
    Survivor("consumer/attempt/copies/keys_on_disk.py", "        if len(self._waiting) >= WAITING:", "        if len(self._waiting) > WAITING:", "one key more is written at a time"),
    Survivor("consumer/ordering/collations.py", "    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 0xFFFF)):", "    for pattern, last in ((_NEW, 1114112), (_OLD, 0xFFFF)):", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/fold.py", "    pairs = list(zip(at, values, strict=True))", "    pairs = list(zip(at, values, strict=False))", "both are one for each part of the index"),
    Survivor("producer/decoders/row_codec.py", "            self._starts[event_type] = (body[8:start], start)", "            self._starts[event_type] = (body[9:start], start)", "the first row is looked for in every event anew, which is slower"),
    Survivor("producer/decoders/columns.py", "    if column.length <= 53:", "    if column.length < 53:", "53 bits are always a number that JSON holds exactly, and the larger ones' way leaves those as they are"),
)  # fmt: skip


def known_survivor(mutant: Mutant) -> str | None:
    """Return why a fresh mutant may survive; None: it is to be found."""
    return next((each.why for each in SURVIVORS if each[:3] == mutant[:3]), None)
