"""What the processes of an agent exchange: lines on pipes."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any

import msgspec

from consumer.attempt.spec import _KnownTable
from consumer.process.instructions import _encode_ready_line, _encode_slow_line
from consumer.reporting.protocol import LineWriter, decode_command, encode_unit_event
from consumer.reporting.slot_lines import encode_slot_line
from consumer.reporting.status_lines import StatusWriter
from consumer.units.supervision import WatchedUnit
from producer.main import _report_failure, _report_trouble, _report_watermark
from schemas.config.changes.text import ConfigText
from schemas.problems import Problem
from schemas.slots import SlotReport
from schemas.units import (
    CaptureCommand,
    PrepareProgress,
    UnitCommand,
    UnitLine,
    UnitProgressed,
    WorkerEnded,
    WorkerEvent,
)
from schemas.wire.records import Watermark
from tests.formats.samples import sample
from tests.formats.structure import Case, Structure

UNIT = "apply/to-hq/rowlock.branch1.bank.acct"
_FILES = {PrepareProgress: "GettingOn", UnitProgressed: "Progressed", WorkerEnded: "Ended"}
"""Events of workers whose golden files have an older name."""


def _event(event: WorkerEvent) -> bytes:
    return encode_unit_event(UNIT, event).encode()


def _of_event(data: bytes) -> WorkerEvent:
    """As the agent reads the lines of its apply process."""
    return msgspec.convert(json.loads(data), UnitLine).event


def _status(unit: WatchedUnit) -> bytes:
    out = io.StringIO()
    writer = StatusWriter("to-hq", LineWriter(out))
    writer.write_status({"rowlock.branch1.bank.acct": unit})
    writer.write_problem("what", "why")
    return out.getvalue().strip().encode()


def _slots(report: SlotReport) -> bytes:
    return encode_slot_line(report).strip().encode()


def _of_slots(data: bytes) -> SlotReport:
    """As the agent reads them."""
    return msgspec.convert(json.loads(data), SlotReport)


def _printed(write: Callable[[Any], object]) -> Callable[[Any], bytes]:
    """Return the function that gives what `write` prints on stdout."""

    def written(value: Any) -> bytes:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            write(value)
        return out.getvalue().strip().encode()

    return written


def _report_some_trouble(why: str) -> None:
    _report_trouble("branch1", why, delivery_failed=True)


STRUCTURES = (
    Structure(
        "unit-command",
        (Case("command", sample(UnitCommand), msgspec.json.encode, decode_command),),
        (UnitCommand,),
    ),
    Structure(
        "unit-line",
        tuple(
            Case(_FILES.get(kind, kind.__name__), sample(kind), _event, _of_event)
            for kind in WorkerEvent.__args__
        ),
        (UnitLine,),
    ),
    Structure(
        "known-table",
        (
            Case(
                "table",
                sample(_KnownTable),
                msgspec.json.encode,
                lambda data: msgspec.json.decode(data, type=_KnownTable),
            ),
        ),
        (_KnownTable,),
    ),
    Structure(
        "configuration-line",
        (
            Case(
                "line",
                sample(ConfigText),
                msgspec.json.encode,
                lambda data: msgspec.json.decode(data, type=ConfigText),
            ),
        ),
        (ConfigText,),
    ),
    Structure(
        "apply-lines",
        (
            Case("status", sample(WatchedUnit), _status, None),
            Case("slots", sample(SlotReport), _slots, _of_slots),
            Case("ready", 12.345, lambda seconds: _encode_ready_line(seconds).strip().encode(), None),
            Case("slow", 12.3, lambda seconds: _encode_slow_line(seconds).strip().encode(), None),
        ),
        (WatchedUnit, SlotReport),
        forgotten=frozenset({"0.applied", "0.state"}),  # of the pipeline; no process read them
    ),
    Structure(
        "capture-command",
        (
            Case(
                "command",
                sample(CaptureCommand),
                msgspec.json.encode,
                lambda data: msgspec.json.decode(data, type=CaptureCommand),
            ),
        ),
        (CaptureCommand,),
    ),
    Structure(
        "capture-lines",
        (
            Case("captured", sample(Watermark), _printed(_report_watermark), None),
            Case("trouble", "why", _printed(_report_some_trouble), None),
            Case("failed", "why", _printed(lambda why: _report_failure("branch1", Problem(why))), None),
        ),
    ),
)
