"""Mutants of the source Oracle: what would lose rows of a log that is used up, or publish them twice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = ("tests/unit/test_oracle_mlog.py",)
_CATALOGUE = ("tests/unit/test_oracle_catalogue.py",)
_SEGMENTS = ("tests/unit/test_oracle_segments.py",)
_LOOK = ("tests/unit/test_oracle_look.py",)
_STAND = "tests/integration/test_oracle_stand.py"
_VIEW = ("tests/integration/test_oracle_view.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...]) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


def _on_stand(file: str, *changes: tuple[str, str, str]) -> list[Mutant]:
    """`changes`: with the test of stand (a) that finds them."""
    return [Mutant(file, old, new, (f"{_STAND}::test_{test}",)) for old, new, test in changes]


MUTANTS = [
    *_of(
        "producer/sources/oracle/segments.py",
        ("    if before.data - now.data:\n", "    if now.data - before.data:\n"),
        ("    return before.altered != now.altered if before.altered else", "    return False if before.altered else"),
        ("    if now.came - before.data:\n", "    if False:\n"),
        ("    if last and any(", "    if False and any("),
        ("    if not now.data and now.ddl != before.ddl:\n", "    if False:\n"),
        ("    return not any(fresh <= time <= ahead", "    return not any(fresh <= time < fresh"),
        tests=_SEGMENTS,
    ),
    *_of(
        "producer/sources/oracle/following.py",
        (";{segments.last_part}", ""),
        ("            if name in self.tables and self.tables[name].settled:\n", "            if name in self.tables:\n"),
        tests=_SEGMENTS,
    ),
    *_of(
        "producer/oracle/definitions.py",
        ("if not is_over(each, fresh)]\n", "if False]\n"),
        tests=("tests/integration/test_oracle_stand.py::test_a_second_alter_in_the_second_of_the_first_is_seen",),
    ),
    *_of(
        "producer/oracle/catalog.py",
        (" if int(row[4]) != int(row[3]))", " if False)"),
        (' if row[2] != "TABLE")', " if False)"),
        tests=("tests/integration/test_oracle_stand.py::test_rows_that_come_and_go_with_a_place_stop_the_table",),
    ),
    *_of(
        "producer/sources/oracle/catalogue.py",
        (" and before.unlogged == now.unlogged", ""),
        ("    if policies:\n", "    if False:\n"),
        ('and _list_value_columns(before) == _list_value_columns(now)', "and bool(before)"),
        tests=(*_CATALOGUE, "tests/unit/test_oracle_check.py"),
    ),
    *_of(
        "producer/oracle/look.py",
        ('    if altered or not is_followable(before, logged):', '    if not is_followable(before, logged):'),
        ("        if altered or defined is None or", "        if defined is None or"),
        tests=_LOOK,
    ),
    *_on_stand(
        "producer/oracle/look.py",
        ("    if views := look.views.get(name):", "    if views := ():", "a_view_that_comes_to_use_the_log_stops_the_table"),
        ("    if look.several and logged", "    if False and logged", "a_second_instance_stops_tables_whose_log_does_not_say_the_order"),
        ("    if table.unsure:", "    if False:", "a_start_behind_the_retention_publishes_nothing_twice"),
    ),
    *_on_stand(
        "producer/sources/oracle/sql.py",
        ("LEFT JOIN ALL_REGISTERED_MVIEWS", "JOIN ALL_REGISTERED_MVIEWS", "a_view_that_comes_to_use_the_log_stops_the_table"),
        ("LEFT JOIN ALL_SUMMAP", "JOIN ALL_SUMMAP", "rows_wait_for_their_commit_scns"),
        ("s.COMMIT_SCN NULLS FIRST, {order}", "s.COMMIT_SCN, {order}", "rows_wait_for_their_commit_scns"),
        ('order = f"s.COMMIT_SCN NULLS FIRST, {order}"', 'order = f"{order}"', "commits_put_rows_of_two_instances_in_order"),
    ),
    *_on_stand(
        "producer/loop/position.py",
        ("        if not held and (self._used_up is None or not self._used_up.outstanding):\n", "        if not held:\n", "a_delete_that_fails_is_made_up_for_by_the_next_start"),
        ("        if self._store.is_superseded(self._reader, self._record.gen):\n", "        if False:\n", "a_process_that_was_replaced_deletes_nothing"),
    ),
    *_on_stand(
        "producer/oracle/log.py",
        ("        self._purger.purge_published(published)\n", "        pass\n", "a_kill_between_the_acknowledgement_and_the_delete"),
        ("        self._purger.purge_old_rows()\n", "        pass\n", "what_a_log_held_before_is_deleted_unread"),
    ),
    *_of(
        "producer/oracle/log.py",
        ("        kept = {name: rows for name, rows in found.items() if name not in changed}\n", "        kept = found\n"),
        tests=_LOOK,
    ),
    *_of(
        "producer/sources/oracle/shared.py",
        ("if now > views.high else None", "if now >= views.high else None"),
        ("(low, older), (high, _) = sorted", "(high, _), (low, older) = sorted"),
        tests=("tests/unit/test_oracle_shared_rules.py", "tests/sim/test_oracle_shared_log.py"),
    ),
    *_on_stand(
        "producer/oracle/purge.py",
        (" and self._following.captured(*name):", ":", "a_view_that_came_while_nobody_captured_loses_nothing"),
        ("            if deleted != len(places):\n", "            if False:\n", "what_the_log_does_not_show_stops_its_table_until_it_is_copied"),
    ),
    *_of(
        "producer/oracle/purge.py",
        ('bool(self._session.fetch_rows(*sql.select_log_places(logs[name].log, 1)))', "True"),
        tests=("tests/unit/test_oracle_purge.py",),
    ),
    *_of(
        "producer/oracle/chunks.py",
        ("        return brought is not None and brought < answer.high[1]\n", "        return False\n"),
        tests=("tests/sim/test_oracle.py",),
    ),
    *_of(
        "producer/oracle/chunks.py",
        ("self._brought(self._asked[0])", "self._brought(self._asked[-1])"),
        ("        except Exception:\n            self._asked.popleft()\n", "        except Exception:\n"),
        tests=("tests/unit/test_oracle_chunks.py",),
    ),
    *_of(
        "producer/resume/positions.py",
        ("        if offset == self._next:\n", "        if True:\n"),
        tests=("tests/unit/test_capture_positions.py",),
    ),
    *_of(
        "rowlock/inspect/observed/polled.py",
        ("        if seen is None or seen[0] < self._from:\n", "        if seen is None:\n"),
        ("mark.gen != self._first.gen or", "False or"),
        ("        return polled and not mark.snapshot_pending\n", "        return polled\n"),
        tests=_VIEW,
    ),
    *_of(
        "producer/sources/oracle/mlog.py",
        ("before=after if change.before is None else change.before", "before=change.before"),
        ('    for row in sorted(rows, key=_build_sort_key):\n        by_key', "    for row in rows:\n        by_key"),
        ("now[i] if i in unlogged else value", "now[i]"),
        tests=_RULES,
    ),
    *_on_stand(
        "producer/oracle/poll.py",
        ("        waits = logged.by_commit and", "        waits = False and", "rows_wait_for_their_commit_scns"),
        ("        if table.held > MOST_HELD:", "        if False:", "rows_whose_commit_scn_never_comes_stop_their_table"),
    ),
    *_of(
        "producer/oracle/poll.py",
        ("self._following.captured(*name) or not self._following.tables[name].recorded:", "self._following.captured(*name):"),
        tests=("tests/unit/test_oracle_poll.py",),
    ),
    *_on_stand(
        "producer/oracle/definitions.py",
        ("        if place.beginning:\n            found", "        if False:\n            found", "a_start_behind_the_retention_goes_on"),
    ),
    *_on_stand(
        "producer/resume/topic_recovery.py",
        ("cut=low > start)", "cut=False)", "a_start_behind_the_retention_publishes_nothing_twice"),
        ("        if event.log is not None:\n", "        if False:\n", "a_kill_between_the_acknowledgement_and_the_delete"),
    ),
    *_on_stand(
        "producer/oracle/rows.py",
        ("        return [place for change in self.changes[: self.published] for place in change.places]\n", "        return [place for change in self.changes for place in change.places[:1]]\n", "a_log_with_keys_only_says_the_row_as_it_is"),
    ),
    *_of(
        "producer/sources/oracle/mlog.py",
        ("    if open_updates and whole:\n", "    if False:\n"),
        ("    return row.scn, row.sequence\n", "    return row.sequence, row.scn\n"),
        ("last[row.xid] = max(last.get(row.xid, 0), row.sequence)", "last.setdefault(row.xid, row.sequence)"),
        ("max(stored, highest + 1)", "stored"),
        ("return begun + 2 * STEP", "return begun + STEP"),
        ("        at_least += _APART\n", "        pass\n"),
        tests=_RULES,
    ),
    *_of(
        "schemas/table/oracle_ddl.py",
        (' if type_.precision else "NUMBER"', ""),
        tests=("tests/unit/test_any_scale.py",),
    ),
    *_of(
        "consumer/targets/oracle/catalogue.py",
        ("            if (type_ := types.get(column)) in PADDED:\n", "            if (type_ := types.get(column)) is None:\n"),
        tests=("tests/unit/test_oracle_texts.py",),
    ),
    *_of(
        "consumer/targets/oracle/values.py",
        ('value.rstrip(" ")', "value"),
        tests=("tests/unit/test_oracle_texts.py",),
    ),
    *_of(
        "schemas/table/oracle_ddl.py",
        ('PADDED = frozenset({"CHAR", "NCHAR"})', 'PADDED = frozenset({"CHAR"})'),
        tests=("tests/unit/test_oracle_texts.py",),
    ),
    # keys that a statement hands on
    *_of(
        "producer/sources/oracle/mlog.py",
        ('row for row in sorted(rows, key=_build_sort_key)}\n', "row for row in rows}\n"),
        ('row in last.items() if row.dml == "D"]', 'row in last.items() if row.dml == "I"]'),
        ("    for change in reversed(changes):\n", "    for change in changes:\n"),
        ('else change._replace(op="u", after=now))', "else change)"),
        ("    return found[::-1]\n", "    return found\n"),
        tests=_RULES,
    ),
    *_of(
        "producer/oracle/poll.py",
        ('        gone = [] if logged.keys_only else list_finally_deleted_keys(rows, key)\n', "        gone: list[Key] = []\n"),
        ("                if LogPlace(row.rowid, row.sequence) not in read_:\n", "                if False:\n"),
        ('    return with_kept(changes, part.kept, make_key_extractor(logged))\n', "    return changes\n"),
        tests=("tests/unit/test_oracle_poll.py", "tests/integration/test_oracle_stand.py::test_keys_that_one_statement_hands_on"),
    ),
    *_of(
        "producer/sources/oracle/sql.py",
        ('[*own, "NULL", "0", *expressions]', '[*own, "0", "NULL", *expressions]'),
        tests=_CATALOGUE,
    ),
    # what `check` asks for
    *_of(
        "producer/oracle/checks.py",
        ("((logged.table.db, logged.table.name), logged.log)", "((logged.table.db, logged.table.name),)"),
        ("else user.upper())", "else user)"),
        ('        if hidden := _find_hidden_views(catalog, place, user):\n', "        if hidden := []:\n"),
        ('    if number < MIN_ORACLE_VERSION:\n', "    if not number:\n"),
        tests=("tests/unit/test_oracle_check.py",),
    ),
    *_of(
        "consumer/targets/oracle/connection.py",
        ('[:2]) < MIN_SERVER_VERSION:\n', "[:2]) < (12, 1):\n"),
        tests=("tests/unit/test_oracle_check.py",),
    ),
    # NaN and the infinities
    *_of(
        "schemas/values/converter.py",
        ('    return "NaN" if isnan(value) else', '    return value if isnan(value) else'),
        tests=("tests/unit/test_any_scale.py",),
    ),
    *_of(
        "schemas/values/postgres_rows.py",
        ('    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _make_constant_reader(encode_wire_float)),\n', ""),
        tests=("tests/unit/test_any_scale.py",),
    ),
]  # fmt: skip
