"""Fresh mutants that no test has to find, and why: `--fresh` names them, and does not count them.

A reason says why the product does the same with the change, or who alone would see a difference.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.mutants.mutant import Mutant


class Survivor(NamedTuple):
    """`old` of `file` becomes `new`, as `tests.mutants.fresh` draws it."""

    file: str
    old: str
    new: str
    why: str


class Limit(NamedTuple):
    """A number that somebody chose and that stands alone behind `name` in `file`: one more is as good. `why`: what it bounds."""

    file: str
    name: str
    why: str


LIMITS: tuple[Limit, ...] = (
    Limit("consumer/ordering/lanes/limits.py", "max_gather", "events in a transaction"),
    Limit("consumer/ordering/lanes/limits.py", "max_pending", "events in memory"),
    Limit("consumer/ordering/locks.py", "SWEEP", "values in memory before free ones are looked for"),
    Limit("consumer/attempt/applier.py", "KEYS_SAID", "keys in a line of the log"),
    Limit("consumer/attempt/copies/keys.py", "PAGE", "keys looked up at a time"),
    Limit("consumer/attempt/copies/keys_on_disk.py", "IN_MEMORY", "keys in memory before they go to a file"),
    Limit("consumer/attempt/copies/keys_on_disk.py", "WAITING", "keys written to the file at a time"),
    Limit("consumer/attempt/copies/sweep.py", "HERE", "keys compared before another process does it"),
    Limit("consumer/attempt/debezium.py", "AGAIN_MS", "milliseconds left to clocks, of a minute"),
    Limit("consumer/attempt/debezium.py", "REMEMBERED", "rows of a log event in memory"),
    Limit("consumer/attempt/drivers/threads.py", "KEYS", "keys listed at a time"),
    Limit("consumer/attempt/evolution/machine.py", "ROUNDS", "tries at a change that others alter meanwhile"),
    Limit("consumer/attempt/kafka_reader.py", "SLICE", "records read at a time"),
    Limit("consumer/attempt/reports.py", "MAX_REPORTS", "reports in a datagram, whose bytes are looked at, too"),
    Limit("consumer/attempt/spec.py", "SMALL_BATCH", "events in one transaction for all lanes; more of them go to the lanes"),
    Limit("consumer/attempt/transactions.py", "TRIES", "tries before the next attempt goes on"),
    Limit("consumer/attempt/transactions.py", "RESOLVE_TRIES", "tries before the next attempt goes on"),
    Limit("producer/snapshot/scheduler.py", "AT_ONCE", "tables whose chunks are read at a time"),
    Limit("producer/decoders/generate.py", "_PATTERNS", "compiled functions in memory"),
    Limit("producer/decoders/row_codec.py", "_MAX_COUNTERS", "compiled functions in memory"),
    Limit("producer/decoders/scalars.py", "_LIMIT", "texts in memory"),
)  # fmt: skip

SURVIVORS: tuple[Survivor, ...] = (
    Survivor("consumer/ordering/model.py", "    ts_ms: int = 0", "    ts_ms: int = 1", "only tests leave the field out, and none of them looks at it"),
    Survivor("producer/loop/copy_begins.py", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (1, 0)):", "logs are counted from 1, and a file begins with 4 bytes: no place is that low"),
    Survivor("producer/loop/copy_begins.py", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):", "        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 1)):", "logs are counted from 1, and a file begins with 4 bytes: no place is that low"),
    Survivor("consumer/attempt/copies/keys_on_disk.py", "        if len(self._waiting) >= WAITING:", "        if len(self._waiting) > WAITING:", "one key more is written at a time"),
    Survivor("consumer/ordering/collations.py", "    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 0xFFFF)):", "    for pattern, last in ((_NEW, 1114112), (_OLD, 0xFFFF)):", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/fold.py", "    pairs = list(zip(at, values, strict=True))", "    pairs = list(zip(at, values, strict=False))", "both are one for each part of the index"),
    Survivor("producer/decoders/row_codec.py", "            self._starts[event_type] = (body[8:start], start)", "            self._starts[event_type] = (body[9:start], start)", "the first row is looked for in every event anew, which is slower"),
    Survivor("producer/decoders/columns.py", "    if column.length <= 53:", "    if column.length < 53:", "53 bits are always a number that JSON holds exactly, and the larger ones' way leaves those as they are"),
    Survivor("consumer/attempt/copies/begin.py", "    gen = 0", "    gen = 1", "assignments of capture are counted from 1, and only its events begin copies"),
    Survivor("consumer/attempt/copies/sweep.py", "        source = dict(zip(self._in_force.source.key.columns, key, strict=True))", "        source = dict(zip(self._in_force.source.key.columns, key, strict=False))", "a marker's key has a value for each column of the key"),
    Survivor("consumer/attempt/copies/snapshots.py", "        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)", "        return RowChange((offset, 0), None, row, ZERO, 1, 0, raw, None, True)", "of what is read again only the rows' keys are looked at"),
    Survivor("consumer/ordering/collations.py", "        last: int = 0x10FFFF,", "        last: int = 1114112,", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/layout.py", "        return lane if lanes > 1 else lambda _folded: 0", "        return lane if lanes >= 1 else lambda _folded: 0", "whatever is divided by one lane leaves 0, which is the shorter way's lane"),
    Survivor("consumer/ordering/locks.py", "NOTHING: EventId = (-1, 0)", "NOTHING: EventId = (-2, 0)", "both are below every event's id, and nothing else is asked of it"),
    Survivor("producer/decoders/jsonb.py", "        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[count]", "        size = (1, 1, 1, 2, 2, 3, 3, 4, 4, 4)[count]", "no group of digits is empty"),
    Survivor("producer/decoders/row_codec.py", "        image = tuple(range(len(table.columns))) if len(formats) > len(table.columns) else None", "        image = tuple(range(len(table.columns))) if len(formats) >= len(table.columns) else None", "an image that names all its columns shows what one that names none does: all of them"),
    Survivor("consumer/attempt/copies/sweep.py", '    reader.begin([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], in_force)', '    reader.begin([LaneProgress(0, 0, 1, "", since, place.position, place.gen, "")], in_force)', "a reader asks for the offset, the position and the assignment alone"),
    Survivor("producer/decoders/source.py", "        self._unpacks = 0", "        self._unpacks = 1", "it makes names of functions different, and no more"),
    Survivor("producer/snapshot/chunk_sender.py", "_GENS = 1 << 20", "_GENS = 2 << 20", "generations before numbers of rows come again, which first_row allows for"),
    Survivor("producer/snapshot/chunk_sender.py", "_GENS = 1 << 20", "_GENS = 1 << 21", "generations before numbers of rows come again, which first_row allows for"),
    Survivor("consumer/attempt/copies/copies.py", "    if chunk is None or copy is None or copy.begins is None or copy.since is None:", "    if chunk is None or copy is None or copy.begins is None and copy.since is None:", "a marker of a copy says both, and what begins one says neither"),
)  # fmt: skip


def known_survivor(mutant: Mutant) -> str | None:
    """Return why a fresh mutant may survive; None: it is to be found."""
    return next((each.why for each in SURVIVORS if each[:3] == mutant[:3]), None) or _limit(mutant)


def _limit(mutant: Mutant) -> str | None:
    """Return why, of a mutant that is one more than a number of `LIMITS`."""
    pairs = zip(mutant.old.splitlines(), mutant.new.splitlines(), strict=False)
    changed = next((pair for pair in pairs if pair[0] != pair[1]), None)
    if changed is None or len(mutant.old.splitlines()) != len(mutant.new.splitlines()):
        return None
    for limit in LIMITS:
        number = re.compile(rf"\s*{limit.name}(: int)? = ([\d_]+)(?![\w ]*[-+*<(])")
        was, now = map(number.match, changed)
        if limit.file == mutant.file and was and now and int(now[2]) == int(was[2]) + 1:
            return f"{limit.why}: one more is as good"
    return None
