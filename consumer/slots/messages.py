"""The messages between the apply process and a slot, in both directions.

They are encoded as MessagePack on a stream, and passed as they are to the slot in the apply process.
Their order on one stream is kept.
"""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

import msgspec
import psutil

from consumer.attempt.reports import Report


class ServeUnit(msgspec.Struct, frozen=True, tag="serve"):
    """Apply the unit's events after `offset` under the fencing token `epoch`, until ReleaseUnit.

    The slot has `run` from an earlier UsePipeline.
    """

    run: str = msgspec.field(name="run")
    topic: str = msgspec.field(name="topic")
    source: str = msgspec.field(name="source")
    assignment: int = msgspec.field(name="assignment")
    topic_id: str = msgspec.field(name="topic_id")
    epoch: int = msgspec.field(name="epoch")
    offset: int = msgspec.field(name="offset")
    """The offset of the slowest lane: everything up to it is applied."""
    end: int = msgspec.field(name="end")
    """The topic's next offset, as last seen: the records before it are known to exist."""
    real: bytes = msgspec.field(name="real", default=b"")
    """The target table; see UnitSpec."""
    was: str | None = msgspec.field(name="was", default=None)
    """Why the unit was stopped before its takeover."""
    copy_at: int | None = msgspec.field(name="copy_at", default=None)
    """The offset at which the last copy of the table begins, if known."""
    trial: bool = msgspec.field(name="trial", default=False)
    """Whether an attempt is due although no record may be left; see Report.trial_in_s."""
    only_here: bool = msgspec.field(name="only_here", default=False)
    """Whether only the slot in the apply process serves the unit."""

    @property
    def place(self) -> UnitPlace:
        return self.run, self.topic


UnitPlace = tuple[str, str]
"""(run of a pipeline, topic)."""


class ReleaseUnit(msgspec.Struct, frozen=True, tag="release"):
    """Begin no further attempt at the unit, and answer with UnitReleased when none runs any more."""

    run: str = msgspec.field(name="run")
    topic: str = msgspec.field(name="topic")


class UsePipeline(msgspec.Struct, frozen=True, tag="use"):
    """The settings of a pipeline, secrets included: PipelineSettings, pickled.

    Only slots unpickle, and only what the process that started them sends.
    """

    run: str = msgspec.field(name="run")
    settings: bytes = msgspec.field(name="settings")

    def __repr__(self) -> str:
        return f"UsePipeline(run={self.run!r})"


class ForgetPipeline(msgspec.Struct, frozen=True, tag="forget"):
    """Close what is kept for the run of a pipeline. It has no unit any more."""

    run: str = msgspec.field(name="run")


class CloseSlot(msgspec.Struct, frozen=True, tag="close"):
    """End the slot when its attempts have ended."""


SlotCommand = ServeUnit | ReleaseUnit | UsePipeline | ForgetPipeline | CloseSlot


class SlotOpened(msgspec.Struct, frozen=True, tag="opened"):
    """The first message of a slot's stream. `number`: the slot; a later stream of it replaces this one."""

    number: int = msgspec.field(name="number")
    process: int = msgspec.field(name="process")
    started: float = msgspec.field(name="started")
    """When the process was started, by its host's clock: a number may be given to another process later."""
    host: str = msgspec.field(name="host")
    """For people: several machines may have one name."""
    machine: str = msgspec.field(name="machine", default="")
    """Where `process` is a process's number; see `identify_machine`."""


class UnitReleased(msgspec.Struct, frozen=True, tag="released"):
    """No attempt at the unit runs in the slot, and none begins."""

    run: str = msgspec.field(name="run")
    topic: str = msgspec.field(name="topic")
    epoch: int = msgspec.field(name="epoch")
    """The fencing token under which it was served."""
    offset: int = msgspec.field(name="offset")
    """See ServeUnit."""
    end: int = msgspec.field(name="end")
    trial: bool = msgspec.field(name="trial", default=False)
    """See ServeUnit."""
    failed: bool = msgspec.field(name="failed", default=False)
    """Whether an attempt failed, as its report shows; only another takeover continues the unit."""


class SlotReports(msgspec.Struct, frozen=True, tag="reports"):
    """Results of attempts, or what they wait for."""

    run: str = msgspec.field(name="run")
    reports: list[Report] = msgspec.field(name="reports")


class ServerUnreachable(msgspec.Struct, frozen=True, tag="unreachable"):
    """The slot could not connect to Kafka or to the target of a pipeline."""

    error: str = msgspec.field(name="error")


class PipelineRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The slot serves no unit of a pipeline, because its host lacks a secret that executors read themselves.

    Until the next UsePipeline it releases the pipeline's units that it gets, or serves them with the secrets
    that it had before, until the apply process takes them away.
    """

    run: str = msgspec.field(name="run")
    error: str = msgspec.field(name="error")


SlotAnswer = SlotOpened | UnitReleased | SlotReports | ServerUnreachable | PipelineRefused

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_COMMAND = msgspec.msgpack.Decoder(SlotCommand).decode
_DECODE_ANSWER = msgspec.msgpack.Decoder(SlotAnswer).decode


def describe_slot(number: int) -> SlotOpened:
    """Return the first message of the slot `number`, which is in this process."""
    process = psutil.Process()
    started = process.create_time()
    return SlotOpened(number, process.pid, started, socket.gethostname(), identify_machine())


@cache
def identify_machine() -> str:
    """Return a text that processes have in common if one can find the other by its number, and no others.

    Containers of one machine have numbers of their own, so the text names the system's start and, on Linux,
    the namespace of numbers.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return f"{socket.gethostname()} {psutil.boot_time()}"
    return f"{boot.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"


def encode_slot_message(message: SlotCommand | SlotAnswer) -> bytes:
    return _ENCODE(message)


def decode_slot_command(raw: bytes) -> SlotCommand:
    """Return the command in `raw`. Raises msgspec.DecodeError."""
    return _DECODE_COMMAND(raw)


def decode_slot_answer(raw: bytes) -> SlotAnswer:
    """Return the slot's message in `raw`. Raises msgspec.DecodeError."""
    return _DECODE_ANSWER(raw)
