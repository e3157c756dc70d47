"""Bugs of what is written to targets: fences, progress, quarantine and values."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUGS = [
    Mutant(
        bug="the default that fills old rows stays on a new column",
        file="consumer/targets/mysql/alter_statements.py",
        old=(
            "        return text, [f\"ALTER COLUMN {name} {'SET DEFAULT NULL' if "
            "column.nullable else 'DROP DEFAULT'}\"]"
        ),
        new="        return text, []",
        tests=("tests/unit/test_alter_texts.py",),
    ),
    Mutant(
        bug="an upsert gives its key to the row that has its unique value",
        file="consumer/targets/mysql/sql.py",
        old="= IF({same}, {_render_new(column, by_number)}, {_render_old(column, by_number)})",
        new="= {_render_new(column, by_number)}",
        tests=("tests/unit/test_targets_sql.py",),
    ),
    Mutant(
        bug="a worker writes although another one has moved its progress",
        file="consumer/targets/progress.py",
        old="            if seen != expected:",
        new="            if len(seen) != len(expected):",
        tests=("tests/unit/test_sqlite_target.py",),
    ),
    Mutant(
        bug="a worker with an old fencing token begins an attempt",
        file="consumer/targets/progress.py",
        old="if not rows or any(row.epoch != epoch for row in rows):",
        new="if not rows:",
        tests=("tests/unit/test_sqlite_target.py",),
    ),
    Mutant(
        bug="a transaction commits although the progress rows of its lanes are gone",
        file="consumer/targets/progress.py",
        old="            if affected != expected:",
        new="            if affected > expected:",
        tests=("tests/unit/test_sqlite_target.py",),
    ),
    Mutant(
        bug="progress is read without a lock before rows are written",
        file="consumer/targets/mysql/dialect.py",
        old='DEFAULT {_BIN}",\n    locked=render_for_update',
        new='DEFAULT {_BIN}",\n    locked=lambda select: select',
        tests=("tests/unit/test_targets_sql.py",),
    ),
    Mutant(
        bug="a closed quarantine entry stays open",
        file="consumer/targets/bookkeeping.py",
        old=', (f"DELETE {where}", place)]',
        new="]",
        tests=("tests/unit/test_sqlite_target.py",),
    ),
    Mutant(
        bug="a batch target loses quarantined events",
        file="consumer/attempt/drivers/batches.py",
        old="                held += operation.entries\n",
        new="                pass\n",
        tests=("tests/unit/test_batch_commits.py",),
    ),
    Mutant(
        bug="a batch is committed without its progress",
        file="consumer/attempt/drivers/batches.py",
        old='                made["rows"] = operation.rows\n',
        new="                pass\n",
        tests=("tests/unit/test_batch_commits.py",),
    ),
    Mutant(
        bug="a released event stays in the quarantine of a batch target",
        file="rowlock/inspect/quarantine.py",
        old="self.guards, self.guards, closed=ids, why=why)",
        new="self.guards, self.guards)",
        tests=("tests/unit/test_whole_batches.py",),
    ),
    Mutant(
        bug="a Kafka transaction outlives the lease of its worker",
        file="consumer/targets/kafka/clients.py",
        old="min(MAX_TRANSACTION_S, lease_s * 0.95)",
        new="MAX_TRANSACTION_S",
        tests=("tests/unit/test_kafka_writer.py",),
    ),
    Mutant(
        bug="two units share a transactional id",
        file="consumer/targets/kafka/writer.py",
        old="{config.prefix}./{unit.pipeline}/{unit.topic}",
        new="{config.prefix}.{unit.pipeline}.{unit.topic}",
        tests=("tests/unit/test_kafka_writer.py",),
    ),
    Mutant(
        bug="BIT values get the wrong order of bytes",
        file="consumer/targets/kafka/formats/debezium_columns.py",
        old='int(value).to_bytes(size, "little")',
        new='int(value).to_bytes(size, "big")',
        tests=("tests/unit/test_kafka_debezium_format.py",),
    ),
    Mutant(
        bug="the error value of an ENUM is read as its first label",
        file="consumer/targets/kafka/formats/canal_json_columns.py",
        old='    labels = ("", *type_.members)\n',
        new="    labels = type_.members\n",
        tests=("tests/unit/test_kafka_canal_format.py",),
    ),
    Mutant(
        bug="masked values are hashed without the salt",
        file="consumer/targets/kafka/shaping.py",
        old="hashlib.sha256(salt.encode())",
        new="hashlib.sha256()",
        tests=("tests/unit/test_shaping.py",),
    ),
    Mutant(
        bug="the keys 0.0 and -0.0 are one record of a topic",
        file="consumer/targets/kafka/records.py",
        old="    return encode_identity(list(key))",
        new="    return encode_identity([each or 0 for each in key])",
        tests=("tests/unit/test_signed_zero.py",),
    ),
]
