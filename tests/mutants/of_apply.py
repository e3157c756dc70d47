"""Mutants of the apply side: the order between lanes, and how far a unit is."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ORDER = ("tests/unit/test_lane_order.py",)
_HELD = ("tests/unit/test_held_before_changes.py",)
_CORE = ("tests/unit/test_assigned_core.py",)
_BESIDE = ("tests/unit/test_spark_beside.py",)
_EVOLVING = ("tests/unit/test_evolving.py",)
_EVOLUTION = ("tests/unit/test_evolution.py",)
_COPIES = (
    "tests/unit/test_apply_copies.py",
    "tests/unit/test_living_keys.py",
    "tests/unit/test_copy_desk.py",
)
_SNAPSHOTS = ("tests/unit/test_debezium_snapshots.py",)
_TRUNCATE = (
    "tests/unit/test_unit_apply.py::test_rows_before_a_truncate_in_one_batch_are_gone_behind_it",
    "tests/unit/test_unit_apply.py::test_a_row_lost_inside_a_transaction_stops_the_unit_before_what_follows",
)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _ORDER) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of("consumer/tables/held_events.py", ("entry.offset >= since", "entry.offset >= 0"), ("if since is None and not gone:", "if since is None:"), tests=_HELD),
    *_of("consumer/tables/stored.py", ("columns.renamed or columns.dropped:", "columns.renamed:"), ("    return before.since\n", "    return None\n"), tests=_HELD),
    *_of("rowlock/inspect/quarantine.py", ("    refuse_other_columns(in_force, entry)\n", ""), tests=_HELD),
    *_of("consumer/units/messages.py", ("self.home is None and not self.busy and not self.stop_asked", "self.home is None and not self.stop_asked"), tests=_CORE),
    *_of(
        "consumer/units/decisions.py",
        ("unit.homeless and (not unit.behind or not state.queries.spark)", "unit.homeless"),
        ("unit.homeless and (not unit.behind or not state.queries.spark)", "unit.homeless and not unit.behind"),
        (" or QueryKind.LIVE not in state.queries.current:", ":"),
        ("if unit.phase is ApplyPhase.APPLYING:  # a hand followed it", "if False:"),
        ("unit.behind = event.left > SMALL", "pass"),
        tests=_CORE,
    ),
    *_of(
        "consumer/units/queries.py",
        ("if kind is QueryKind.CATCHING_UP and any(unit.busy for unit in members):", "if False:"),
        ("if not queries.spark or kind", "if kind"),
        tests=_CORE,
    ),
    *_of(
        "consumer/process/operations/stretches.py",
        ("if report.offset < start else None", "if False else None"),
        ("min(start + SMALL, end)", "end"),
        tests=_BESIDE,
    ),
    *_of("consumer/process/pipeline_queries.py", ("min(first, last.get(topic, first))", "first"), tests=_BESIDE),
    *_of(
        "consumer/attempt/lane_group.py",
        (
            "batch = lane.batch()\n",
            "batch = lane.batch()\n        self._locks.release(number, batch.events[1] if batch.events else (-1, 0))\n",
        ),
        ("            lane.failed(error)\n            return\n", "            lane.failed(error)\n"),
        ("self.stopping or all(ready(wait) for wait in waits)", "self.stopping or any(ready(wait) for wait in waits) or True"),
    ),
    *_of("consumer/attempt/lane_group.py", ('        if self.stopping:\n            raise RuntimeError("the lanes', '        if False:\n            raise RuntimeError("the lanes')),
    *_of(
        "consumer/ordering/locks.py",
        ("last[1] == ticket[1] or self._released[last[1]] >= last[0]", "last[1] == ticket[1] or self._released[last[1]] > (-1, 0)"),
        ("last[1] == ticket[1] or self._released[last[1]] >= last[0]", "last[1] == ticket[1]"),
        ("return self._released[wait[1]] >= wait[0]", "return self._released[wait[1]] > wait[0]"),
        ("        holders[value] = ticket\n        if last", "        if last"),
    ),
    *_of(
        "consumer/ordering/dispatch.py",
        ("(second, plan, new, waits + order)", "(second, plan, new, waits)"),
        ("order: tuple[Wait, ...] = ()", "order: tuple[Wait, ...] = ((first.id, source),)"),
        ("after=None, refused=None)", "after=None)"),
    ),
    *_of(
        "consumer/ordering/collations.py",
        ("        if prefix is not None:\n            text = text[:prefix]\n", ""),
        (
            "        if prefix is not None:\n            text = text[:prefix]\n        text = text.lower() if plain and text.isascii() and text.isprintable() else text.translate(table)\n",
            "        text = text.lower() if plain and text.isascii() and text.isprintable() else text.translate(table)\n        text = text[:prefix]\n",
        ),
        ("text = text[:prefix]", "text = text.encode()[:prefix].decode(errors='replace')"),
    ),
    *_of("consumer/ordering/fold.py", ('compared_by(table, part) or "", part.prefix)', 'compared_by(table, part) or "", None)')),
    *_of(
        "rowlock/inspect/caught_up.py",
        ("done = min((lane.offset", "done = max((lane.offset"),
        ("if done < end - 1:", "if done < end - 2:"),
        ("if done < end - 1:", "if done < end:"),
    ),
    *_of("consumer/attempt/transactions.py", ("def lowest(self) -> LaneProgress:\n        return min(", "def lowest(self) -> LaneProgress:\n        return max(")),
    *_of("consumer/process/takeover.py", ('up to its offset is applied."""\n        return min(', 'up to its offset is applied."""\n        return max(')),
    *_of(
        "consumer/ordering/progress.py",
        ("highest = max(row.offset", "highest = min(row.offset"),
        ("if stored and stored != topic_id:", "if stored != topic_id:"),
        ("if stored and stored != topic_id:", "if False:"),
        ("if highest > end:", "if highest >= end:"),
        ("if highest > end:", "if highest > end + 1:"),
    ),
    *_of("consumer/process/takeover.py", ("    if refusal is not None:\n        store.stop_unit(", "    if refusal is None:\n        store.stop_unit(")),
    *_of(
        "consumer/ordering/progress.py",
        ("start = min(offsets) + 1", "start = max(offsets) + 1"),
        ("start = min(offsets) + 1", "start = min(offsets) + 2"),
        ("finish=max(offsets)", "finish=min(offsets)"),
        tests=("tests/unit/test_consumer_core.py",),
    ),
    *_of("consumer/ordering/locks.py", ("last[1] == ticket[1] or self", "self"), tests=("tests/unit/test_consumer_core.py",)),
    *_of(
        "consumer/ordering/dedup.py",
        ("lowest = min(lanes, key=lambda row: row.offset)\n        self.offset", "lowest = max(lanes, key=lambda row: row.offset)\n        self.offset"),
        tests=("tests/unit/test_consumer_core.py",),
    ),
    *_of(
        "consumer/ordering/dedup.py",
        ("if prev is not None and prev > self.position:", "if False:"),
        ("if prev is not None and prev > self.position:", "if prev is not None and prev[:3] > self.position[:3]:"),
        ("if prev is not None and prev > self.position:", "if prev is not None and prev[1:] > self.position[1:]:"),
        ("if prev is not None and prev > self.position:", "if prev is not None and prev != self.position:"),
        ("if position <= self.position:", "if position[:3] <= self.position[:3]:"),
        ("        if gen < self.gen:\n            return _ZOMBIE\n", ""),
        ("        if offset <= self.offset:\n            return _COVERED\n", ""),
        tests=("tests/unit/test_consumer_core.py",),
    ),
    *_of(
        "consumer/attempt/reader.py",
        ("                    changes = []\n                    yield self._barrier", "                    yield self._barrier"),
        (
            "                    yield self._rows(changes, offset - 1)\n                    changes = []\n                    yield self._barrier(offset, raw)\n",
            "                    yield self._barrier(offset, raw)\n                    yield self._rows(changes, offset)\n                    changes = []\n",
        ),
        ("            yield self._rows(changes, offset - 1)\n            raise\n        yield self._rows(changes, offset)\n\n    def _tools", "            raise\n        yield self._rows(changes, offset)\n\n    def _tools"),
        tests=_TRUNCATE,
    ),
    *_of(
        "consumer/attempt/reader.py",
        ("                    yield self._rows(changes, offset - 1)\n                    changes = []\n                    yield self", "                    changes = []\n                    yield self"),
        tests=("tests/unit/test_unit_apply.py",),
    ),
    *_of(
        "consumer/attempt/attempt.py",
        ("        if isinstance(taken, Emptied):\n            yield from self._drain()\n", "        if isinstance(taken, Emptied):\n"),
        ("            Truncate(in_force.target, in_force.routed.where),\n", ""),
        ("            CloseHeldBefore(mark[0], f", "            CloseHeldBefore(0, f"),
        ("        yield from self._close_applier()  # its lanes remember keys that are held no more\n", ""),
        tests=("tests/unit/test_unit_apply.py",),
    ),
    *_of(
        "consumer/attempt/attempt.py",
        ('            raise CopyNeededError(why, cause="definition", after=mark[0], instead=error) from error', "            raise"),
        ("                    raise stop.instead or stop", "                    raise stop"),
        tests=_EVOLVING,
    ),
    *_of(
        "consumer/attempt/copies/sweep.py",
        ("dead = [key for key in some if key in there]", "dead = list(some)"),
        ("            if list(there) == [key]:\n                yield from self._delete(self._of, [key])\n", ""),
        ("keys.excuse((yield LookUp(self._table, some)))", "yield LookUp(self._table, some)"),
        ("if self._looked > HERE and not self._patient:", "if False:"),
        ("        return (yield from self.of_table(begins, at, bound))", "        return 0"),
        ("return (yield from self._compared(keys, None, upto))", "return (yield from self._compared(keys, None, None))"),
        tests=_COPIES,
    ),
    *_of(
        "consumer/targets/shared/lookups.py",
        ("if len(keys) == 1:", "if True:"),
        ("found_under(look, keys[:half]) + found_under", "found_under"),
        tests=("tests/unit/test_living_keys.py",),
    ),
    *_of(
        "consumer/attempt/drivers/threads.py",
        ("found_under(lambda some: session.fetch_keys(effect.table, some), effect.keys)", "session.fetch_keys(effect.table, effect.keys)"),
        tests=_COPIES,
    ),
    *_of(
        "consumer/attempt/copies/begin.py",
        ("source.position <= position", "False"),
        ("source.gen < max(row.gen for row in rows)", "False"),
        ("event.source.gen >= gen", "True"),
        ("event.definition is not None and not event.copy.partial", "event.definition is not None"),
        ("    if event is None or offset <= after:", "    if event is None:"),
        tests=_COPIES,
    ),
    *_of(
        "consumer/attempt/copies/window.py",
        ("if offset > since}", "if True}"),
        ("            note(old, False)\n", "            pass\n"),
        ("            self._last.clear()", "            pass"),
        tests=_COPIES,
    ),
    *_of(
        "consumer/attempt/copies/held.py",
        ("of[-1].offset <= begins or not", "not"),
        ("or not leaves_row(in_force, of[-1])", ""),
        tests=_COPIES,
    ),
    *_of("consumer/attempt/reader.py", ("read = event.op == SNAPSHOT_READ\n                    changes", "read = False\n                    changes"), tests=_COPIES),
    *_of(
        "consumer/ordering/netchange.py",
        ("net.snapshot.append(row)", "net.replaces.append(row)"),
        ("if key not in last:\n                        read[key] = after", "if True:\n                        read[key] = after"),
        ("                first.pop(key, None)\n                read.pop(key, None)\n            if", "                first.pop(key, None)\n            if"),
        ("                    first.pop(key, None)\n                    read.pop(key, None)\n", "                    first.pop(key, None)\n"),
        (" and (row is read[key] or fixed(read[key]) == fixed(row))", ""),
        tests=("tests/unit/test_consumer_core.py",),
    ),
    *_of(
        "consumer/targets/sql.py",
        ("if table.column(name).type.kind is not Kind.INT]", "]"),
        ("if table.column(name).type.kind is not Kind.INT]", "if False]"),
        tests=("tests/unit/test_targets_sql.py",),
    ),
    *_of("consumer/targets/mysql/sql.py", ("= IF({same}, VALUES({column}), {column})", "= VALUES({column})"), tests=("tests/unit/test_targets_sql.py",)),
    *_of("consumer/attempt/debezium.py", ("self._newest, raw, None, read)", "self._newest, raw, None, False)"), tests=("tests/unit/test_unit_debezium.py",)),
    *_of(
        "schemas/wire/debezium_snapshot.py",
        ("offset if self._first is None and self._apart else self._first", "offset if self._first is None else self._first"),
        ("            self._first = None  # an older row", "            pass  # an older row"),
        ("if first is not None and first > self.after:", "if first is not None:"),
        ('if event.op != "r" or event.source is None', "if event.source is None"),
        ("self.next = max(after, 0)", "self.next = max(after + 1, 0)"),
        ("            self.found = first, offset", "            self.found = self.found or (first, offset)"),
        ('    "true": SnapshotPlace.INSIDE,', '    "true": SnapshotPlace.INSIDE, "incremental": SnapshotPlace.INSIDE,'),
        tests=_SNAPSHOTS,
    ),
    *_of(
        "consumer/attempt/copies/snapshots.py",
        ("if not rows.is_last(key)", ""),
        ("sweep.of_table(first, last + 1)", "sweep.of_table(first, last)"),
        ("gone_keys(in_force, held, first - 1)", "gone_keys(in_force, held, last)"),
        ("        found.first - 1,", "        found.first,"),
        ("    if before is None or not spec.patient:", "    if before is None:"),
        ("    stored = replace(before, snapshot=(found.first, found.last))", "    stored = before"),
        ("replace(in_force.stored, snapshot=None).encode()", "in_force.stored.encode()"),
        tests=_SNAPSHOTS,
    ),
    *_of(
        "consumer/attempt/evolution/in_target.py",
        ("since=since, snapshot=snapshot))", "since=since))"),
        tests=_SNAPSHOTS,
    ),
    *_of(
        "consumer/attempt/attempt.py",
        ("self._changes.unfit is not None and self._progress.lowest.offset == stood:", "self._changes.unfit is not None:"),
        tests=(
            "tests/unit/test_evolving.py::test_an_attempt_that_is_given_the_copy_goes_on_with_it_though_the_target_fits_what_comes_then_alone",
        ),
    ),
    *_of(
        "schemas/wire/debezium.py",
        ('    if op == "r":\n        return EventOrigin', '    if False:\n        return EventOrigin'),
        ('return None if event.op == "r" else event', "return event"),
        tests=("tests/unit/test_schemas_debezium.py",),
    ),
    *_of("consumer/attempt/attempt.py", ("Stored(table, since=mark[0], snapshot=before.snapshot)", "Stored(table, since=mark[0])"), tests=_SNAPSHOTS),
    *_of("schemas/wire/records.py", ('("", *topic.rsplit(".", 2))', '("", *topic.split(".", 2))'), tests=_COPIES),
    *_of("schemas/table/names.py", (' if "." in name or "`" in name else name', " if False else name"), tests=("tests/unit/test_copies.py", "tests/unit/test_stops.py")),
    *_of("schemas/wire/copies.py", ("copies.get(table_text(db, table))", 'copies.get(f"{db}.{table}")'), tests=_COPIES),
    *_of(
        "consumer/tables/key_order.py",
        ("real.fsp >= source.fsp", "True"),
        ("not real.precision or real.scale >= scale", "True"),
        ("real.length == source.length)", "True)"),
        ("if any(part.prefix for part in key.parts)", "if False"),
        tests=_COPIES,
    ),
    *_of("consumer/units/decisions.py", ("begun = event.begun and before is None", "begun = event.begun"), tests=_COPIES),
    *_of(
        "consumer/attempt/evolution/machine.py",
        ("            yield from retried(lambda: ask(EndConnection(mark.connection)))", "            pass"),
        ("            yield from self._unmark(change)\n            raise", "            raise"),
        ("                yield from self._by_statements(change, mark.at, connection)\n        except (RefusedError, TargetConfigError, UnitStoppedError) as error:", "                yield from self._by_statements(change, mark.at, connection)\n        except RefusedError as error:"),
        ("                    yield from self._progress.guarded([WriteUnit(UnitState(state.definition, None, None))])\n                    raise", "                    raise"),
        ("cause=DROPPED, after=at[0], instead=error) from error", "cause=DROPPED, after=at[0]) from error"),
        ("        if self.before is not None and self.before.lost:\n", "        if False:\n"),
        ("            change = replace(change, planned=planned.stored)\n", ""),
        tests=_EVOLVING,
    ),
    *_of(
        "consumer/attempt/evolution/in_target.py",
        ('    if asked.how == "end" and planned.alter is not None:', "    if False:"),
        ("        if units[topic].ddl is not None:", "        if False:"),
        ("    if not found or session.read_table(routed.schema, routed.table) is not None:\n", "    if not found:\n"),
        ("definition=replace(stored, lost=True).encode()", "definition=stored.encode()"),
        tests=_EVOLVING,
    ),
    *_of("consumer/attempt/spec.py", ("known.of in (None, stored.encode())", "True"), tests=_EVOLVING),
    *_of(
        "consumer/tables/evolution/plans.py",
        ("if name in real.column_names and not _empty_there(wish, before, real, name):", "if False:"),
        ("if name in real.column_names and not _empty_there(wish, before, real, name):", "if name in real.column_names:"),
        ("return wish.shared(name) and fresh", "return wish.shared(name)"),
        ("empty = there.nullable and not default and", "empty = there.nullable and"),
        (", unwritten=lacks)", ")"),
        ("            *columns.renamed.values(),\n", ""),
        tests=_EVOLUTION,
    ),
    *_of(
        "consumer/tables/evolution/plans.py",
        ("            *{*unwritten}.intersection(wish.wanted.column_names),\n", ""),
        tests=_EVOLVING,
    ),
    *_of("consumer/attempt/copies/copies.py", ('SupersedeDisplaced(f"{target.schema}.{target.name}", begins, why)', 'SupersedeDisplaced(f"{target.schema}.{target.name}", mark[0], why)'), tests=_COPIES),
    *_of("consumer/targets/shared/displaced_rows.py", ("last[0] < before", "last[0] <= before"), ("row.table == table and last", "last"), tests=("tests/unit/test_displaced_rows.py",)),
    *_of("consumer/tables/definition.py", ("    if come:\n", "    if False:\n"), ("unwritten=unwritten(wanted, there, routed.policy)", "unwritten=stored.unwritten"), tests=_EVOLVING),
    *_of("consumer/attempt/evolution/machine.py", ("in_force.stored.unwritten != self.before.unwritten:", "False:"), tests=_EVOLVING),
    *_of(
        "consumer/tables/evolution/widening.py",
        ("return new.members[: len(old.members)] == old.members", "return True"),
        ("    if real.kind is Kind.CHAR:", "    if False:"),
        tests=("tests/unit/test_widening.py",),
    ),
    *_of(
        "consumer/tables/evolution/decisions.py",
        ("    if old.nullable and not new.nullable:", "    if False:"),
        ('    if policy == "stop" and not same_definition(in_force, table):', "    if False:"),
        tests=_EVOLUTION,
    ),
]  # fmt: skip
