"""A worker that is stopped (SIGSTOP) inside a transaction can never write again once its unit was taken over.

The worker is a real process with a real connection; what it says on its standard output drives the test.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit, NetChange
from tests.kits.targets import LAYOUT, Target, as_target, people, rows_of

ZOMBIE = """
import json, sys
from msgspec.structs import replace
from consumer.errors import ConsumerError
from consumer.ordering.model import NetChange, ApplyUnit
from tests.kits.targets import as_target, opened_again, people

def say(*words):
    print(json.dumps(words), flush=True)

config, schema, paused_at = json.loads(sys.argv[1])
session = opened_again(config, name="zombie")
unit, table = ApplyUnit("pipe", "topic"), as_target(people(schema))
rows, _, _ = session.begin_attempt(unit, 1)
after = [replace(row, offset=10) for row in rows]

def work():
    with session.begin_transaction(unit, rows) as tx:
        if paused_at == "guard":
            say("holding"); sys.stdin.readline()
        tx.apply_net_change(NetChange(table, updates=[(1, None, None, None, "zombie")]))
        tx.write_progress(after)
        if paused_at == "commit":
            say("holding"); sys.stdin.readline()

for _ in range(3):
    try:
        work()
        say("wrote")
        break
    except ConsumerError as error:
        say(type(error).__name__)
        paused_at = ""
"""


@contextmanager
def zombie(target: Target, paused_at: str) -> Iterator[subprocess.Popen[str]]:
    config = target.config().model_dump(mode="json") | {"password": getattr(target.service, "password", "")}
    argument = json.dumps([config, target.schema, paused_at])
    with subprocess.Popen(
        [sys.executable, "-c", ZOMBIE, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def reported(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return [json.loads(line)[0] for line in process.stdout if line.startswith('["')]  # and not the log


@pytest.mark.parametrize("paused_at", ["guard", "commit"])
def test_a_stopped_worker_never_writes_after_the_take_over(target: Target, paused_at: str) -> None:
    table = as_target(people(target.schema))
    session = target.open()
    session.create_table(table.table)
    session.ensure_bookkeeping()
    unit = ApplyUnit("pipe", "topic")
    session.take_over(unit, "id", LAYOUT, 3)
    with zombie(target, paused_at) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["holding"]
        process.send_signal(signal.SIGSTOP)
        epoch, rows, _ = session.take_over(unit, "id", LAYOUT, 1)
        assert (epoch, [row.offset for row in rows]) == (2, [-1, -1, -1])
        rows, _, _ = session.begin_attempt(unit, epoch)
        with session.begin_transaction(unit, rows) as tx:
            tx.apply_net_change(NetChange(table, updates=[(1, None, None, None, "heir")]))
            wrote = [structs.replace(row, offset=5) for row in rows]
            tx.write_progress(wrote)
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        words = reported(process)
        assert words[-1] == FencedError.__name__
        assert "wrote" not in words
    assert rows_of(session, table) == [(1, None, None, None, "heir")]
    assert session.read_progress(unit)[0] == wrote


def test_a_worker_that_ends_in_time_is_not_ended(target: Target) -> None:
    """The take-over waits before it looks for anyone to end: a commit under way gets through and is seen."""
    table = as_target(people(target.schema))
    session = target.open()
    session.create_table(table.table)
    session.ensure_bookkeeping()
    unit = ApplyUnit("pipe", "topic")
    session.take_over(unit, "id", LAYOUT, 1)
    with zombie(target, "commit") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline()) == ["holding"]
        process.stdin.write("\n")
        process.stdin.flush()
        _, rows, _ = session.take_over(unit, "id", LAYOUT, 1)
        assert reported(process) == ["wrote"]
    assert [row.offset for row in rows] == [10]
