"""Mutants of what all targets share: the progress store, the seam of dialects, whole batches."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SQLITE = ("tests/unit/test_sqlite_target.py",)
_JSON = ("tests/unit/test_json_folder.py", "tests/unit/test_batch_commits.py")

_ALTER = ("tests/unit/test_alter_texts.py",)
_ORACLE = ("tests/unit/test_oracle_texts.py", "tests/unit/test_oracle_link.py")
_QUERY = ("tests/unit/test_batch_query.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _SQLITE) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of(
        "consumer/targets/postgres/alter.py",
        ("        if statement.columns & added.columns or added.before:", "        if added.before:"),
        ("for at, old in enumerate(names) if old in taken}", "for at, old in enumerate(names) if old in ()}"),
        ("        None\n        if wanted.name in list_indexed_columns(whole.ending)\n        else _render_column_literal(", "        _render_column_literal("),
        ("    nulls = now.nullable or not step.lossless\n", "    nulls = now.nullable\n"),
        ("        if now.default is not None:  #", "        if not now:  #"),
        ("    if step.wanted.name in whole.ending.key.columns:\n", "    if not step:\n"),
        ("    return [each for each in found if each.name == index.name] or found", "    return [each for each in found if each.name == index.name]"),
        ("whole.before.get(column, column) for column in index.columns", "column for column in index.columns"),
        ('.replace("%", "%%") + "\'"', ' + "\'"'),
        tests=_ALTER,
    ),
    *_of(
        "consumer/targets/mysql/alter.py",
        ("    whole.lenient |= not step.lossless or (now.nullable and not wanted.nullable)\n", "    whole.lenient |= not step.lossless\n"),
        ("        each.changed |= each.column.auto_increment\n", "        pass\n"),
        ('    exact = column.name in list_indexed_columns(whole.ending) or column.type.members\n', '    exact = column.name in list_indexed_columns(whole.change.table) or column.type.members\n'),
        (" or column.type.members\n", "\n"),
        ("    taken = whole.real.names - whole.dropped.keys()", "    taken = frozenset[str]()"),
        ("and column.type.kind not in _SPELT_OUT", "and not default"),
        ("        return text, [f\"ALTER COLUMN {name} {'SET DEFAULT NULL' if column.nullable else 'DROP DEFAULT'}\"]", "        return text, []"),
        tests=_ALTER,
    ),
    *_of(
        "consumer/targets/oracle/connection.py",
        ('            self.execute("ROLLBACK TO SAVEPOINT rowlock_batch", [])\n', ""),
        ('        worst = failures[find_gravest_error([failure.full_code for failure in failures])]', "        worst = failures[0]"),
        ("            if code in CONNECTION_LOST or code == TIMED_OUT:", "            if code in CONNECTION_LOST:"),
        ("                if marks and len(params) > marks:", "                if marks and len(params) > 99:"),
        ("        raw.autocommit = True\n", ""),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/oracle/locks.py",
        ("    return (instance << 56) | (serial << 24) | sid", "    return (instance << 56) | sid"),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/oracle/sql.py",
        (" for column in columns if column not in key]\n    same", " for column in columns]\n    same"),
        ("    return name.lower() if name == name.upper() and not shouted else name", "    return name.lower() if name == name.upper() else name"),
        ("max(1, round(seconds))", "round(seconds)"),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/oracle/catalogue.py",
        (" if len(index.columns) > 1 and index.nulls_distinct else []", " if index.nulls_distinct else []"),
        ("    return columns if (conditions.pop() or frozenset()) <= set(columns) else None", "    return columns"),
        (" and column.name not in list_keyed_columns(table)\n", "\n"),
        ('    if is_lob(rendered) and column.name in list_keyed_columns(table):', "    if is_lob(rendered) and column.name in table.unique:"),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/oracle/altering.py",
        ("    return not touched.isdisjoint(index.columns)", "    return False"),
        ("    if real in whole.dropped:\n        return\n", ""),
        ("            if step.new in names:\n", "            if not names:\n"),
        ("    return step.lossless and now.partition", "    return now.partition"),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/oracle/values.py",
        ('        if value == "":\n', "        if value is None:\n"),
        ('        "" if value is None and void else value', "        value"),
        ("    return lambda value: from_base64(value) or None", "    return from_base64"),
        tests=_ORACLE,
    ),
    *_of(
        "consumer/targets/altering.py",
        ('                raise LockWaitError(describe_holders(change.table, seen)) from error', "                raise"),
        ('        if connection == self._link.get_connection_id():\n            return\n', ""),
        ("    named.sort(key=lambda index: len(index.name), reverse=True)\n", ""),
        ("                if not isinstance(change, DropTable):\n                    raise\n", ""),
        ('                seen = second.locks.find_lock_holders(identity, table) or seen\n', '                seen = second.locks.find_lock_holders(identity, table)\n'),
        tests=("tests/unit/test_altering.py",),
    ),
    *_of(
        "consumer/targets/progress/store.py",
        ("            if seen != expected:", "            if len(seen) != len(expected):"),
        ("if not rows or any(row.epoch != epoch for row in rows):", "if not rows:"),
        ("            if rows and all(row.epoch == epoch for row in rows):", "            if rows:"),
    ),
    *_of("consumer/targets/progress/writer.py", ("            if self._link.affected != expected:", "            if self._link.affected > expected:")),
    *_of("consumer/targets/bookkeeping/quarantine.py", (', (f"DELETE {where}", place)]', "]")),
    *_of("consumer/targets/shared/keyed_reads.py", ("in (values or {}).items()]", "in ()]")),
    *_of("consumer/targets/dialect.py", ("(dialect.progress or dialect.open)(", "dialect.open("), tests=("tests/unit/test_progress_elsewhere.py",)),
    *_of("consumer/targets/mysql/dialect.py", ('DEFAULT {_BIN}",\n    locked=render_for_update', "DEFAULT {_BIN}\",\n    locked=lambda select: select"), tests=("tests/unit/test_targets_sql.py",)),
    *_of(
        "consumer/targets/checks/table_findings.py",
        ("        elif concerned:\n", "        elif concerned and each.level:\n            continue\n        elif concerned:\n"),
        ("        if not each.columns:\n            yield", "        if each.columns:\n            yield"),
        tests=("tests/unit/test_fitness.py",),
    ),
    *_of(
        "consumer/attempt/drivers/batches.py",
        ("        if isinstance(outcome, BatchFenced):", "        if outcome is None:"),
        ("                held += operation.entries\n", "                pass\n"),
        ("                held += operation.entries\n", "                held = [*operation.entries]\n"),
        ('                made |= {"closed_before": operation.offset, "why": operation.why}\n', "                pass\n"),
        ('                changes.append(TableCleared(operation.table, operation.where))\n', "                pass\n"),
        ('                changes.append(TableCleared(operation.table, operation.where))\n', '                changes.insert(0, TableCleared(operation.table, operation.where))\n'),
        ('                if held or "closed_before" in made:', "                if held:"),
        ('                if held or "closed_before" in made:', '                if "closed_before" in made:'),
        ('                made["rows"] = operation.rows\n', "                pass\n"),
        ("                    effect = machine.throw(error)\n                else:\n                    effect = machine.send(result)\n        except StopIteration:\n            return\n", "                    raise error\n                else:\n                    effect = machine.send(result)\n        except StopIteration:\n            return\n"),
        tests=_JSON,
    ),
    *_of(
        "consumer/attempt/drivers/batches.py",
        ('                return targets.get_connection(0).begin_attempt(spec.unit, spec.epoch)\n', "                return targets.get_connection(0).take_over(spec.unit, spec.topic_id, '', 1)[1:] + ([],)\n"),
        tests=_QUERY,
    ),
    *_of(
        "rowlock/inspect/quarantine.py",
        ("            if isinstance(ended, BatchFenced):", "            if ended is None:"),
        ("[] if net is None else [net], change\n", "[], change\n"),
        ("self.guards, self.guards, closed=ids, why=why)", "self.guards, self.guards)"),
        tests=_QUERY,
    ),
    *_of("consumer/attempt/drivers/run.py", ("    if spec.batches:", "    if not spec.batches:"), tests=_QUERY),
    *_of(
        "consumer/spark/batch_query.py",
        ("            if not self._closed:\n                read =", "            if not self._config:\n                read ="),
        ("read(topic, first, last + 1)) for", "read(topic, first, last)) for"),
        ("        self._closed = True\n        if not self._busy", "        if not self._busy"),
        tests=_QUERY,
    ),
    *_of(
        "consumer/spark/query.py",
        ('.trigger(processingTime=f"{round(every * 1000)} milliseconds")', '.trigger(processingTime="0 seconds")'),
        tests=_QUERY,
    ),
    *_of(
        "consumer/spark/worker.py",
        ("        except ConsumerError:\n            raise  # of a topic that is read from Kafka itself: the unit's own\n", ""),
        ("        if self._own_attempts:\n", "        if not self._stopped:\n"),
        tests=_QUERY,
    ),
    *_of("consumer/spark/active_units.py", ("return os.getpid() if self._here[topic] else None", "return None"), tests=_QUERY),
    *_of(
        "consumer/spark/pipeline.py",
        ('config=pipeline.model_copy(update={"lanes": 1}) if batches else pipeline', "config=pipeline"),
        ("usual = WHOLE_BATCH if self.batches else LaneLimits()", "usual = LaneLimits(max_gather=2_000)"),
        ("(self.config.commit_every or COMMIT_EVERY_S) if self.batches", "COMMIT_EVERY_S if self.batches"),
        tests=_QUERY,
    ),
    *_of("consumer/units/decisions.py", ('pause = max(state.commit_interval_s, RANGE_INTERVAL_S', 'pause = max(0.0, RANGE_INTERVAL_S'), tests=("tests/unit/test_assigned_core.py::test_hands_keep_the_pace_of_a_target_of_whole_batches",)),
    *_of(
        "consumer/process/operations/fencing.py",
        ("            if holder != os.getpid():", "            if holder:"),
        tests=("tests/unit/test_batch_query.py::test_an_attempt_in_this_process_is_waited_for_and_not_killed",),
    ),
    *_of("schemas/config/checks.py", ("    if batches and pipeline.lanes", "    if not batches and pipeline.lanes"), ("    if not batches and pipeline.commit_every", "    if pipeline.commit_every"), tests=("tests/unit/test_target_kinds.py",)),
]  # fmt: skip
