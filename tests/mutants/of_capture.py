"""Mutants of capture: what it stores and when, and what snapshots are told and make of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORY = ("tests/unit/test_capture_story.py",)
_HISTORY = ("tests/unit/test_snapshot_chunks.py::test_a_history",)
_ORDER = ("tests/unit/test_snapshot_order.py",)
_WRITER = ("tests/unit/test_capture_writer.py",)
_FILES = ("tests/unit/test_file_source.py",)
_LATE = ("tests/unit/test_late_tables.py",)
_CONVERSIONS = ("tests/unit/test_conversions.py",)
_COPIES = ("tests/unit/test_copies.py", "tests/unit/test_copy_story.py", "tests/unit/test_stops.py")


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _STORY) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of("producer/barriers/unconverted.py", ("    if doubt is not None and definitions.converted(", "    if False and definitions.converted("), tests=_CONVERSIONS),
    *_of(
        "producer/binlog_format/log_event.py",
        ("not mode & _STRICT and not _takes_any_date(mode)", "not mode & _STRICT and not mode & _INVALID_DATES"),
        ("found.get(_TIME_ZONE, b\"\\0\")[1:]", "b\"\""),
        tests=_CONVERSIONS,
    ),
    *_of(
        "producer/sources/converted.py",
        ("        return True  # it takes too long", "        return False  # it takes too long"),
        ("    if zone.upper() == \"SYSTEM\" and fixed(", "    if fixed("),
        ("            _each(session, [end, SESSION_SQL])\n", "            _each(session, [end])\n"),
        tests=_CONVERSIONS,
    ),
    *_of(
        "producer/statements/conversions.py",
        ("if \"COPY\" in asked or words[:1] == [\"OPTIMIZE\"]:", "if \"COPY\" in asked:"),
        ("{name.lower().replace(", "{name.replace("),
        ("if settings.zeroes_dates and may_copy(tokens) else ()", "if settings.zeroes_dates else ()"),
        tests=_CONVERSIONS,
    ),
    *_of(
        "producer/loop/rows.py",
        ("        if self._snapshots.tables.under_way(name):\n", "        if False:\n"),
        ("self._snapshots.rows_seen(state, _mark(rows.header), rows.keys(state, source))", "self._snapshots.rows_seen(state, _mark(rows.header), rows.keys(state, source)[:1])"),
        ("self._snapshots.rows_seen(state, _mark(rows.header), rows.keys(state, source))", "self._snapshots.rows_seen(state, _mark(rows.header), rows.keys(state, source)[-1:])"),
        ("            self._writer.send(topic, key, mark_last(value))\n", "            self._writer.send(topic, key, value)\n"),
        ("that one may be the transaction's last.\"\"\"\n        if not records:\n            return\n", "that one may be the transaction's last.\"\"\"\n        if not records:\n            return\n        self._held = None\n"),
    ),
    *_of(
        "producer/loop/loop.py",
        ("        self._snapshots.delivered(boundary.header.gtid)\n", ""),
        ("        self._position.moved(file, pos)\n", ""),
        (
            "        self._snapshots.delivered(boundary.header.gtid)\n        if self._copies.due and not self._log.inside:\n            self._copy(boundary.file, boundary.pos)\n        if self._snapshots.tables.active:\n            self._advance(boundary.file, boundary.pos)\n",
            "        if self._snapshots.tables.active:\n            self._advance(boundary.file, boundary.pos)\n        self._snapshots.delivered(boundary.header.gtid)\n",
        ),
        ("        if self._log.inside:\n            return", "        if self._log.begun:\n            return"),
        ("        self._writer.drain()\n        self._position.store()\n        taken", "        self._position.store()\n        self._writer.drain()\n        taken"),
        ("        self._writer.drain()\n        self._position.store()\n        taken", "        self._writer.drain()\n        taken"),
        ("    def _batch_left(self) -> None:\n", "    def _batch_left(self) -> None:\n        self._position.moved(*self._log.point)\n"),
        ("        self._writer.drain()\n        self._ticker.last()\n", "        self._ticker.last()\n"),
        ("if (stop := not_undone(engines)) is not None:", "if (stop := not_undone(engines)) is None:"),
    ),
    *_of(
        "producer/loop/ticker.py",
        ("self._writer.mark(lambda: self._acknowledged(milestone, idle=idle))", "self._acknowledged(milestone, idle=idle)"),
        ("        self._say_when_acknowledged(idle=idle)\n", "        self._position.moved(*self._log.point)\n        self._say_when_acknowledged(idle=idle)\n"),
        ("        if end is None or (binlog_file_number(end[0])", "        if end is not None and (binlog_file_number(end[0])"),
        ("end[1]) < (binlog_file_number(point[0]), point[1]):", "end[1]) <= (binlog_file_number(point[0]), point[1]):"),
        ("end[1]) < (binlog_file_number(point[0]), point[1]):", "end[1]) < (binlog_file_number(point[0]), 0):"),
    ),
    *_of(
        "producer/loop/position.py",
        ("        self.acknowledged(self.milestone(held=False))\n", "        self.moved(*self._log.point)\n        self.acknowledged(self.milestone(held=False))\n"),
        ("        self.resume = boundary\n        self._log", "        self._log"),
        ("        if self._noted is not self.resume:\n", "        if self._noted is self.resume:\n"),
        ("        self._log.ended(boundary)\n", ""),
        ("        if not held and (self._used_up is None or not self._used_up.outstanding):\n", "        if True:\n"),
        ("        boundary, proof, anchors, done, _ = milestone\n", "        boundary, proof, anchors, done, _ = self.milestone(held=False)\n"),
        ("        boundary, proof, anchors, done, _ = milestone\n", "        boundary, proof, _, done, _ = milestone\n        anchors = self._started.captured.anchors(self._writer.offsets)\n"),
        ("        boundary, proof, anchors, done, _ = milestone\n", "        boundary, proof, anchors, _, _ = milestone\n        done = self._snapshots.done\n"),
    ),
    *_of("producer/loop/table_stops.py", ("        self._snapshots.tables.forget(name)\n", "")),
    *_of(
        "producer/copies/limits.py",
        ("state.offset > request.after", "state.offset >= request.after"),
        ("now - at < HOUR_MS", "now - at <= HOUR_MS"),
        ("if len(at_once) >= AT_ONCE:", "if len(at_once) > AT_ONCE:"),
        ("if len(at_once) >= AT_ONCE:", "if len(at_once) >= AT_ONCE - 1:"),
        ('        and other.by != "operator"\n', '        and other.by not in ("operator", "capture")\n'),
        ("if estimate is not None and estimate > limits.max_rows:", "if estimate is not None and estimate >= limits.max_rows:"),
        tests=_COPIES,
    ),
    *_of(
        "producer/copies/again.py",
        ("    if request.limits is None:\n", "    if False:\n"),
        ("    if restarts >= RESTARTS:\n", "    if restarts > RESTARTS:\n"),
        ("book.states.put(replace(state, restarts=restarts, began_ms=began))", "pass"),
        ("is_open(before) and before.where is None", "is_open(before)"),
        tests=_COPIES,
    ),
    *_of("producer/copies/repair.py", ("matches(route.from_, *table)", "True"), ("taking or [RepairConfig()]", "taking"), tests=_COPIES),
    *_of(
        "producer/copies/book.py",
        ("        if state.restarts >= RESTARTS:\n            why", "        if state.restarts > RESTARTS:\n            why"),
        ("        if state.ended_stop:\n", "        if False:\n"),
        tests=_COPIES,
    ),
    *_of(
        "producer/copies/states.py",
        ("self.all.values() if self.running is None else ()", "self.all.values()"),
        ("state.begin != begun.position or state.phase in", "state.phase in"),
        ("        if state is not None and is_open(state):\n            self.put(replace(state, max_rows", "        if state is not None:\n            self.put(replace(state, max_rows"),
        tests=_COPIES,
    ),
    *_of(
        "producer/loop/copy_begins.py",
        ("        self._snapshots.copy(state)\n        self._position.store()\n", "        self._snapshots.copy(state)\n"),
        ("        if not self.passed(name, file, pos):\n            return None\n", ""),
        ("        self._snapshots.sender.take_row(topic)\n        transaction", "        transaction"),
        tests=_COPIES,
    ),
    *_of(
        "producer/loop/copies.py",
        ("            self._book.requests = offset + 1\n", ""),
        tests=_COPIES,
    ),
    *_of(
        "producer/resume/topic_recovery.py",
        ("        self.markers.clear()\n", ""),
        ("begun.offset <= known", "begun.offset < known"),
        ("if place < here or", "if place <= here or"),
        tests=_COPIES,
    ),
    *_of("producer/loop/watermarks.py", ("is not None and self._reported.get(t) != o", "is not None")),
    *_of(
        "producer/snapshot/resume.py",
        ("or tail.begun != begun:\n", "or False:\n"),
        ("repeated=begun is not None)", "repeated=False)"),
        tests=(*_STORY, *_COPIES),
    ),
    *_of(
        "producer/barriers/barriers.py",
        (
            "        self.writer.send(state.topic.name, key, value)\n        self.changed(state, transaction)\n",
            "        self.writer.send(state.topic.name, key, value)\n",
        ),
    ),
    *_of(
        "producer/snapshot/scheduler.py",
        ("            self._delivered.add(gtid)\n", "            pass\n"),
        ("self._step(job, chunks.TableChanged(mark, now))", "pass"),
    ),
    *_of(
        "producer/snapshot/chunk_sender.py",
        ("return ceiling is None or (self._context.epoch, *point, self.next_row(topic)) > ceiling", "return True"),
    ),
    *_of(
        "producer/snapshot/chunks.py",
        ("if len(chunk.rows) >= state.limit else None", "if len(chunk.rows) >= self.chunk_rows else None"),
        tests=_COPIES,
    ),
    *_of("producer/snapshot/chunk_sender.py", ("+ min(took, CHUNK_S)", "+ took"), tests=_COPIES),
    *_of("producer/snapshot/scheduler.py", ("        job.machine.chunk_rows = rows_at_once(self._chunk_rows, self._copies.states.fulfilled(job.table))\n", ""), tests=_COPIES),
    *_of(
        "producer/kafka/in_flight.py",
        ("        while self._batches and not self._batches[0].waiting:", "        while self._batches:"),
    ),
    *_of(
        "producer/kafka/in_flight.py",
        ("            self._batches[-1].marks.append(action)\n", "            self._batches[0].marks.append(action)\n"),
        tests=_WRITER,
    ),
    *_of(
        "producer/kafka/writer.py",
        ("        if self._pending:\n            self._produce()\n        self._in_flight.mark(action)\n", "        self._in_flight.mark(action)\n"),
        tests=_WRITER,
    ),
    *_of(
        "producer/snapshot/chunks.py",
        ("            begin=event.point,\n", ""),
        ("            delivered=event.delivered.copy() if event.delivered is not None else None,\n            seen=[],\n        )\n        state, effects", "            seen=[],\n        )\n        state, effects"),
        ("        if not read.low.reaches(state.begin, state.delivered):\n", "        if False:\n"),
        ("        if None in unseen:\n            return self._read(state, now + _LOW_RETRY)\n", ""),
        ("for mark, keys in state.seen if not read.low.saw(mark)]", "for mark, keys in state.seen if read.low.saw(mark)]"),
        ("        state.seen.append((event.mark, None))\n", ""),
        ("        return self._read(msgspec.structs.replace(state, table=event.table), now)\n", "        return msgspec.structs.replace(state, table=event.table), []\n"),
        ("if len(chunk.rows) >= state.limit else None", "if len(chunk.rows) > state.limit else None"),
        ("upto = _key(chunk.rows[-1], columns)", "upto = _key(left[-1], columns)"),
        ("        state.touched.update(key for key in event.keys if key in state.keys)\n", "        pass\n"),
        ("if _key(row, columns) not in state.touched)", "if _key(row, columns))"),
        ("touched = {key for keys in unseen for key in keys or () if key in chunk_keys}", "touched = set[Key]()"),
        ("            after=emit.upto,\n", ""),
        tests=_HISTORY,
    ),
    *_of(
        "producer/sources/chunk_data.py",
        ("return mark.gtid is not None and mark.gtid in self.gtids", "return True"),
        ("mark.point < self.point", "mark.point <= self.point"),
        ("self.point >= at", "self.point >= (at[0], at[1] - 10)"),
        ("self.gtids.covers(delivered)", "delivered.covers(self.gtids)"),
        tests=_HISTORY,
    ),
    *_of("producer/snapshot/chunks.py", ("if read.request != state.request or state.chunk is not None:", "if state.chunk is not None:")),
    *_of(
        "producer/snapshot/chunks.py",
        ("if state.chunk is None or event.point < state.chunk.high:", "if state.chunk is None:"),
        tests=("tests/unit/test_snapshot_chunks.py::test_a_chunk_waits_for_high",),
    ),
    *_of(
        "producer/snapshot/reader.py",
        (
            "            cursor.execute(sql, parameters or None)\n            found = cursor.fetchall()\n",
            "            high = self._visibility.log_end(cursor)\n            cursor.execute(sql, parameters or None)\n            found = cursor.fetchall()\n            self._visibility.log_end = lambda _: high  # type: ignore[method-assign]\n",
        ),
        (
            "            low = self._visibility.begin(cursor)\n            cursor.execute(sql, parameters or None)\n            found = cursor.fetchall()\n",
            "            cursor.execute(sql, parameters or None)\n            found = cursor.fetchall()\n            low = self._visibility.begin(cursor)\n",
        ),
        ("            if not self._prepared and not self._visibility.prepare(connection, self._started):\n", "            if False:\n"),
        ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        ("_TABLE_CHANGED = frozenset({1054, 1146, 1412})", "_TABLE_CHANGED = frozenset({1054, 1412})"),
        tests=_ORDER,
    ),
    *_of(
        "producer/flavours/mariadb.py",
        (
            '        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")\n        cursor.execute("SHOW STATUS LIKE \'binlog_snapshot_%\'")\n        found = {name.lower(): value for name, value in cursor.fetchall()}\n',
            '        cursor.execute("SHOW STATUS LIKE \'binlog_snapshot_%\'")\n        found = {name.lower(): value for name, value in cursor.fetchall()}\n        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")\n',
        ),
        ('"START TRANSACTION WITH CONSISTENT SNAPSHOT"', '"START TRANSACTION"'),
        tests=_ORDER,
    ),
    *_of(
        "producer/flavours/mysql.py",
        ('        cursor.execute("START TRANSACTION READ ONLY")\n', ""),
        ("return first is None or first >= started", "return first is None or first > started"),
        tests=_ORDER,
    ),
    *_of(
        "producer/snapshot/reader.py",
        ("column.type.members.index(value) + 1 if value else 0", "column.type.members.index(value) if value else 0"),
        ("return Decimal(value)  # a text", "return value  # a text"),
        ("sum(1 << column.type.members.index(label)", "sum(2 << column.type.members.index(label)"),
        ('condition = f"{name} >= %s AND ({name} > %s OR', 'condition = f"{name} >= %s AND ({name} >= %s OR'),
        ('condition = f"{name} >= %s AND ({name} > %s OR', 'condition = f"{name} > %s AND ({name} > %s OR'),
        ('condition = f"{names[-1]} > %s"', 'condition = f"{names[-1]} >= %s"'),
        ("_BY_NUMBER = frozenset({Kind.ENUM, Kind.SET, ", "_BY_NUMBER = frozenset({Kind.ENUM, "),
        ("        self._thread.join()\n        self._reader.close()\n", "        self._reader.close()\n"),
        ("            self._closed.wait(max(0.0, request.not_before - self._clock()))\n", ""),
        tests=("tests/unit/test_snapshot_query.py",),
    ),
    *_of(
        "producer/binlog_format/log_event.py",
        ("crc32(event[:-_CHECKSUM]) == int", "_is_file_name(event[_ROTATE_NAME:-_CHECKSUM]) and int"),
        ("crc32(event[:-_CHECKSUM]) == int", "not _is_file_name(event[_ROTATE_NAME:]) or 0 == int"),
        ("    if not _is_file_name(name):\n        raise", "    if not name:\n        raise"),
        tests=_WRITER,
    ),
    *_of(
        "producer/sources/binlog/log_stream.py",
        ("        if binlog_file_number(file) < binlog_file_number(self.file):\n", "        if False:\n"),
        ("binlog_file_number(file) < binlog", "binlog_file_number(file) <= binlog"),
        tests=_WRITER,
    ),
    *_of(
        "producer/sources/binlog/binlog_log.py",
        ("            elif event.type in ANY_ROWS:  # of a table that nobody captures: there may be many\n                yield None\n", ""),
        ("                    yield self._fold.after_barrier(event)\n", "                    pass\n"),
        ("                yield error\n                continue\n", "                continue\n"),
        tests=("tests/unit/test_binlog_log.py",),
    ),
    *_of("producer/resume/startup.py", ("here = self.source.resumed(stored)", "here = self.source.beginning()"), tests=_FILES),
    *_of("producer/barriers/concern.py", ("        if barrier.verdicts is not None:\n", "        if False:\n"), tests=_FILES),
    *_of(
        "producer/barriers/barriers.py",
        ("if begins is not None and position <= begins:", "if begins is not None and position < begins:"),
        tests=_LATE,
    ),
    *_of(
        "producer/barriers/new_tables.py",
        ("        if passed_over and state.definition_offset != end:", "        if sql is None and state.definition_offset != end:"),
        ("        if passed_over and state.definition_offset != end:", "        if state.definition_offset != end:"),
        ("        if passed_over and state.definition_offset != end:", "        if False:"),
        tests=_LATE,
    ),
    *_of("producer/resume/startup.py", ("            if state.definition_offset != state.topic.end:", "            if False:"), tests=_LATE),
    *_of(
        "producer/statements/columns.py",
        ("    if spelled.keys() != columns.keys():\n        return None\n", ""),
        ("            if not each.defined and not (converted and was.type.charset is not None):\n", "            if False:\n"),
        ("return not any(_computed_from(column, retyped) for column in after.columns)", "return True"),
        ("column.auto_increment and not was.auto_increment", "False"),
        ("for name, each in now.items() if each.origin is None)", "for name, each in now.items() if name not in before.column_names)"),
        tests=("tests/unit/test_statement_columns.py",),
    ),
    *_of(
        "producer/statements/shadows.py",
        ("        if missing and self._tools.needs_triggers(shadow, (known.db, known.table)):\n", "        if False:\n"),
        ("        if known.unknown:\n            return Swapped(known.unknown)\n", ""),
        ("    if columns.renamed:\n", "    if False:\n"),
        ("    if refusal := _refuses_rows(before, after):\n", "    if refusal := '':\n"),
        ("        if index.parts not in known:\n", "        if False:\n"),
        ("or (was.nullable and not now.nullable):", "or False:"),
        ("            self._touched(name, done, statement)\n", ""),
        ("            elif done.at > known.at:\n", "            else:\n"),
        ("if not (each.over and each.at < point)", "if not each.over"),
        ("if shadow is not None and (trash or (away and not left)):", "if shadow is not None:"),
        ("if not known.over and at > known.at and name[1] in words:", "if not known.over and at > known.at:"),
        ('return "" if found == table else "it was made like another table"', 'return ""'),
        ('    if not _MAY_REFUSE.isdisjoint(token.upper for token in tokens):\n', "    if False:\n"),
        tests=("tests/unit/test_shadows.py",),
    ),
    *_of(
        "producer/barriers/barriers.py",
        ("        if statement.action == \"create\" and self.shadows.is_away(state.name):\n", "        if False:\n"),
        ("            self.made_again(name, barrier)\n", "            pass\n"),
        tests=("tests/unit/test_barriers.py",),
    ),
    *_of(
        "producer/barriers/new_tables.py",
        ("        if _moves(barrier.statement) and not self.snapshots:\n", "        if False:\n"),
        tests=("tests/unit/test_barriers.py",),
    ),
    *_of(
        "producer/barriers/barriers.py",
        ("barrier.sql, effect=effect, columns=columns", "barrier.sql, effect=effect"),
        tests=("tests/unit/test_barriers.py",),
    ),
    *_of("producer/loop/rows.py", ("if (at.file_number, at.pos) < begins[1:3]:", "if (at.file_number, at.pos) <= begins[1:3]:"), tests=_LATE),
    *_of(
        "producer/resume/startup.py",
        ("if in_force is None and (in_force := tail.beginning(record.epoch)) is not None:", "if False:"),
        tests=_LATE,
    ),
]  # fmt: skip
