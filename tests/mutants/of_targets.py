"""Mutants of what all targets share: the progress store, the seam of dialects, whole batches."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SQLITE = ("tests/unit/test_sqlite_target.py",)
_JSON = ("tests/unit/test_json_folder.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _SQLITE) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of(
        "consumer/targets/progress_store.py",
        ("            if seen != expected:", "            if len(seen) != len(expected):"),
        ("if not rows or any(row.epoch != epoch for row in rows):", "if not rows:"),
        ("            if rows and all(row.epoch == epoch for row in rows):", "            if rows:"),
    ),
    *_of("consumer/targets/progress_writer.py", ("            if self._link.affected != expected:", "            if self._link.affected > expected:")),
    *_of("consumer/targets/bookkeeping.py", (', (f"DELETE {where}", place)]', "]")),
    *_of("consumer/targets/shared/keyed_reads.py", ("in (values or {}).items()]", "in ()]")),
    *_of("consumer/targets/dialect.py", ("(dialect.progress or dialect.open)(", "dialect.open("), tests=("tests/unit/test_progress_elsewhere.py",)),
    *_of("consumer/targets/mysql/dialect.py", ("DEFAULT {_BIN}\",\n    locked=for_update", "DEFAULT {_BIN}\",\n    locked=lambda select: select"), tests=("tests/unit/test_targets_sql.py",)),
    *_of(
        "consumer/targets/checks/table_findings.py",
        ("        elif concerned:\n", "        elif concerned and each.level:\n            continue\n        elif concerned:\n"),
        ("        if not each.columns:\n            yield", "        if each.columns:\n            yield"),
        tests=("tests/unit/test_fitness.py",),
    ),
    *_of(
        "consumer/attempt/drivers/batches.py",
        ("        if isinstance(outcome, BatchFenced):", "        if outcome is None:"),
        ('                made["held"] = operation.entries\n', "                pass\n"),
        ('                made |= {"closed_before": operation.offset, "why": operation.why}\n', "                pass\n"),
        ("                clearing = Clearing(operation.table, operation.where)\n", "                pass\n"),
        ('                made["rows"] = operation.rows\n', "                pass\n"),
        ("                    effect = machine.throw(error)\n                else:\n                    effect = machine.send(result)\n        except StopIteration:\n            return\n", "                    raise error\n                else:\n                    effect = machine.send(result)\n        except StopIteration:\n            return\n"),
        tests=_JSON,
    ),
]  # fmt: skip
