"""Fresh mutants of the apply path that may survive, by file."""

from __future__ import annotations

from tests.mutants.survivors.survivor import Survivor

SURVIVORS: tuple[Survivor, ...] = (
    Survivor("consumer/attempt/copies/begin.py", "    gen = 0", "    gen = 1", "assignments of capture are counted from 1, and only its events begin copies"),
    Survivor("consumer/attempt/copies/copies.py", "    if chunk is None or copy is None or copy.begins is None or copy.since is None:", "    if chunk is None or copy is None or copy.begins is None and copy.since is None:", "a marker of a copy says both, and what begins one says neither"),
    Survivor("consumer/attempt/copies/keys_on_disk.py", '        if len(self._waiting) >= MAX_BUFFERED_KEYS:', '        if len(self._waiting) > MAX_BUFFERED_KEYS:', "one key more is written at a time"),
    Survivor("consumer/attempt/copies/snapshots.py", "        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)", "        return RowChange((offset, 0), None, row, ZERO, 1, 0, raw, None, True)", "of what is read again only the rows' keys are looked at"),
    Survivor("consumer/attempt/copies/sweep.py", "        source = dict(zip(self._active.source.key.columns, key, strict=True))", "        source = dict(zip(self._active.source.key.columns, key, strict=False))", "a marker's key has a value for each column of the key"),
    Survivor("consumer/attempt/copies/sweep.py", '    reader.begin_reading([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], active)', '    reader.begin_reading([LaneProgress(0, 0, 1, "", since, place.position, place.gen, "")], active)', "a reader asks for the offset, the position and the assignment alone"),
    Survivor("consumer/ordering/collations.py", "    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 0xFFFF)):", "    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 65536)):", "nothing is left of that one character, whether it is known or not"),
    Survivor("consumer/ordering/collations.py", "    last = 0x10FFFF if _KNOWS_ALL.match(name) else 0xFFFF if re.match(_UNICODE, name) else 0x7F", "    last = 1114112 if _KNOWS_ALL.match(name) else 0xFFFF if re.match(_UNICODE, name) else 0x7F", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/collations.py", "    zip(RADICALS, IDEOGRAPHS, strict=True)", "    zip(RADICALS, IDEOGRAPHS, strict=False)", "the data has an ideograph for each radical"),
    Survivor("consumer/ordering/dispatch.py", "        for index, at in zip(target.table.unique, target.unique_at, strict=True):", "        for index, at in zip(target.table.unique, target.unique_at, strict=False):", "both are one for each unique index"),
    Survivor("consumer/ordering/collations.py", "    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 0xFFFF)):", "    for pattern, last in ((_NEW, 1114112), (_OLD, 0xFFFF)):", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/collations.py", "        last: int = 0x10FFFF,", "        last: int = 1114112,", "there is no code point beyond the last one"),
    Survivor("consumer/ordering/fold.py", "    pairs = list(zip(at, values, strict=True))", "    pairs = list(zip(at, values, strict=False))", "both are one for each part of the index"),
    Survivor("consumer/ordering/layout.py", "        return compute_lane if lanes > 1 else lambda _folded: 0", "        return compute_lane if lanes >= 1 else lambda _folded: 0", "whatever is divided by one lane leaves 0, which is the shorter way's lane"),
    Survivor("consumer/ordering/tickets.py", 'BEFORE_ALL_EVENTS: ChangeId = (-1, 0)', 'BEFORE_ALL_EVENTS: ChangeId = (-2, 0)', "both are below every event's id, and nothing else is asked of it"),
    Survivor("consumer/ordering/model.py", "    ts_ms: int = 0", "    ts_ms: int = 1", "only tests leave the field out, and none of them looks at it"),
    Survivor("consumer/attempt/copies/sweep.py", '    reader.begin_reading([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], active)', '    reader.begin_reading([LaneProgress(0, 1, 0, "", since, place.position, place.gen, "")], active)', "a reader asks for the offset, the position and the assignment alone"),
    Survivor("consumer/attempt/copies/snapshots.py", '            take(RowBatch(changes, (start - 1, ZERO, 0, 0)))', '            take(RowBatch(changes, (start - 2, ZERO, 0, 0)))', "of what is read again only the rows' keys are looked at"),
    Survivor("consumer/attempt/copies/snapshots.py", "        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)", "        return RowChange((offset, 1), None, row, ZERO, 0, 0, raw, None, True)", "of what is read again only the rows' keys are looked at"),
    Survivor("consumer/attempt/copies/snapshots.py", "    if active is None or active.stored.snapshot is None:", "    if active is None and active.stored.snapshot is None:", "a reader tells of a snapshot's end only where the active definition has one"),
    Survivor("consumer/attempt/lane_group.py", "            self._waiting_for_tickets.discard(number)", "            pass", "a lane that waits no more is woken by each commit, looks, and goes on as it would"),
    Survivor("consumer/attempt/reports.py", "        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)", "        pass", "how many datagrams wait unread is the system's to say, and a lost one loses figures only"),
    Survivor("consumer/attempt/copies/keys_on_disk.py", '        if len(self._waiting) >= MAX_BUFFERED_KEYS:', '        if (not (len(self._waiting) >= MAX_BUFFERED_KEYS)):', "keys are written one at a time then, which is slower"),
    Survivor("consumer/attempt/copies/sweep.py", '    reader.begin_reading([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], active)', '    reader.begin_reading([LaneProgress(1, 0, 0, "", since, place.position, place.gen, "")], active)', "a reader asks for the offset, the position and the assignment alone"),
    Survivor("consumer/attempt/attempt_state.py", '        self.mark: LaneMark = (-1, ZERO, 0, 0)', '        self.mark: LaneMark = (-2, ZERO, 0, 0)', "who begins sets it, and nobody asks before"),
    Survivor("consumer/attempt/attempt_state.py", '        self.mark: LaneMark = (-1, ZERO, 0, 0)', '        self.mark: LaneMark = (-1, ZERO, 1, 0)', "who begins sets it, and nobody asks before"),
    Survivor("consumer/attempt/attempt_state.py", '        self.mark: LaneMark = (-1, ZERO, 0, 0)', '        self.mark: LaneMark = (-1, ZERO, 0, 1)', "who begins sets it, and nobody asks before"),
    Survivor("consumer/attempt/copies/snapshots.py", "        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)", "        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, False)", "of what is read again only the rows' keys are looked at"),
    Survivor("consumer/ordering/dedup.py", "    ZOMBIE = 3  # gen below the highest seen", "    ZOMBIE = 4  # gen below the highest seen", "a verdict is compared with its name, and is not 0"),
    Survivor("consumer/ordering/lanes/lane.py", "    max_bytes: int = 16 * 2**20", "    max_bytes: int = 17 * 2**20", "bytes in a transaction: as good"),
    Survivor("consumer/ordering/lanes/lane.py", "    max_bytes: int = 16 * 2**20", "    max_bytes: int = 16 * 2**21", "bytes in a transaction: as good"),
    Survivor("consumer/attempt/attempt.py", "            elif records[0][0] < start:", "            elif records[0][0] <= start:", "of a slice that begins there, all are taken"),
)  # fmt: skip
