"""Mutants of the source Oracle: what would lose rows of a log that is used up, or publish them twice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = ("tests/unit/test_oracle_mlog.py",)
_CATALOGUE = ("tests/unit/test_oracle_catalogue.py",)
_STAND = ("tests/integration/test_oracle_stand.py",)
_VIEW = ("tests/integration/test_oracle_view.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _STAND) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of(
        "producer/sources/oracle/catalogue.py",
        ("    if before.data - now.data:\n", "    if now.data - before.data:\n"),
        ("    return before.altered != now.altered if before.altered else", "    return False if before.altered else"),
        (" and before.unlogged == now.unlogged", ""),
        ("and _values(before) == _values(now)", "and bool(before)"),
        tests=_CATALOGUE,
    ),
    *_of(
        "producer/oracle/look.py",
        ("    if altered or not followable(before, logged):", "    if not followable(before, logged):"),
        ("        if altered or defined is None or", "        if defined is None or"),
        ("    if views := look.views.get(name):", "    if views := ():"),
        ("    if look.several and logged", "    if False and logged"),
        ("    if table.unsure:", "    if False:"),
    ),
    *_of(
        "producer/sources/oracle/sql.py",
        ("LEFT JOIN ALL_REGISTERED_MVIEWS", "JOIN ALL_REGISTERED_MVIEWS"),
        ("LEFT JOIN ALL_SUMMAP", "JOIN ALL_SUMMAP"),
        ('order = f"s.COMMIT_SCN NULLS FIRST, {order}"', 'order = f"{order}"'),
    ),
    *_of(
        "producer/loop/position.py",
        ("        if not held and (self._used_up is None or not self._used_up.outstanding):\n", "        if not held:\n"),
        ("        if self._store.superseded(self._reader, self._record.gen):\n", "        if False:\n"),
    ),
    *_of(
        "producer/oracle/log.py",
        ("        self._purger.published(published)\n", "        pass\n"),
        ("        self._purger.old()\n", "        pass\n"),
        ("        kept = {name: rows for name, rows in found.items() if name not in changed}\n", "        kept = found\n"),
    ),
    *_of(
        "producer/sources/oracle/shared.py",
        ("if now > views.high else None", "if now >= views.high else None"),
        ("(low, older), (high, _) = sorted", "(high, _), (low, older) = sorted"),
        tests=("tests/unit/test_oracle_shared_rules.py", "tests/sim/test_oracle_shared_log.py"),
    ),
    *_of(
        "producer/oracle/purge.py",
        (" and self._following.captured(*name):", ":"),
        ("bool(self._session.rows(*sql.log_places(logs[name].log, 1)))", "True"),
        ("            if deleted != len(places):\n", "            if False:\n"),
    ),
    *_of(
        "producer/oracle/chunks.py",
        ("        return brought is not None and brought < answer.high[1]\n", "        return False\n"),
        tests=("tests/sim/test_oracle.py",),
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
        ("    for row in sorted(rows, key=_order):\n        by_key", "    for row in rows:\n        by_key"),
        ("now[i] if i in unlogged else value", "now[i]"),
        tests=_RULES,
    ),
    *_of(
        "producer/oracle/poll.py",
        ("        waits = logged.by_commit and", "        waits = False and"),
        ("        if table.held > MOST_HELD:", "        if False:"),
        ("        rows = unpublished(part.rows, followed.old)\n", "        rows = part.rows\n"),
    ),
    *_of(
        "producer/oracle/definitions.py",
        ("        if place.beginning:\n            found", "        if False:\n            found"),
    ),
    *_of(
        "producer/resume/topic_recovery.py",
        ("cut=low > start)", "cut=False)"),
        ("        if event.log is not None:\n", "        if False:\n"),
    ),
    *_of(
        "producer/oracle/rows.py",
        ("        return [place for change in self.changes[: self.published] for place in change.places]\n", "        return [place for change in self.changes for place in change.places[:1]]\n"),
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
        ("row for row in sorted(rows, key=_order)}\n", "row for row in rows}\n"),
        ('row in last.items() if row.dml == "D"]', 'row in last.items() if row.dml == "I"]'),
        ("    for change in reversed(changes):\n", "    for change in changes:\n"),
        ('else change._replace(op="u", after=now))', "else change)"),
        ("    return found[::-1]\n", "    return found\n"),
        tests=_RULES,
    ),
    *_of(
        "producer/oracle/poll.py",
        ("        gone = [] if logged.keys_only else deleted_last(rows, key)\n", "        gone: list[Key] = []\n"),
        ("                if LogPlace(row.rowid, row.sequence) not in read_:\n", "                if False:\n"),
        ("    return with_kept(changes, part.kept, key_of(logged))\n", "    return changes\n"),
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
        ("        if hidden := _hidden(catalog, place, user):\n", "        if hidden := []:\n"),
        ("    if number < OLDEST:\n", "    if not number:\n"),
        tests=("tests/unit/test_oracle_check.py",),
    ),
    *_of(
        "consumer/targets/oracle/connection.py",
        ("[:2]) < OLDEST:\n", "[:2]) < (12, 1):\n"),
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
        ("    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _always(wire_float)),\n", ""),
        tests=("tests/unit/test_any_scale.py",),
    ),
]  # fmt: skip
