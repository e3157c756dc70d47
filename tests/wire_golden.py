"""One message of every kind as the golden files of the wire have it (tests/golden/wire): the bytes, and the
same to be read by people.

A golden file never changes. Within a version of the protocol a message may get a field at its end that has a
default: its bytes then go into a new file (heartbeat.2.json beside heartbeat.json). Anything else raises
`PROTOCOL_VERSION`, and the files of the new version get a folder of their own. `python -m tests.wire_golden`
writes the files that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coordinator.core import messages as core
from coordinator.core.messages import PROTOCOL_VERSION, Header, Liveness, UnitStatus
from coordinator.transport import wire
from coordinator.transport.events import LeaderInfo
from schemas.slots import SlotReport
from schemas.units import OldestAgents, UnitOperation, UnitPhase, UnitProgress

FOLDER = Path(__file__).parent / "golden" / "wire" / f"v{PROTOCOL_VERSION}"

HEADER = Header(812_345, 1_790_000_000_123, 1_790_000_000_456, 4711)
MARK = UnitProgress(1_790_000_001_000, 1_790_000_001_005, (1, 3, 4711, -(2**53)))
CONFIG = core.ConfigVersion("0e8365beb919", 1_790_000_000_500)
UNIT = "apply/to-hq/rowlock.branch1.bank.acct"
STATUSES = (
    UnitStatus(UNIT, 1_790_000_000_456, UnitPhase.REPLICATING, MARK, 1200, "a row waits", 7),
    UnitStatus("capture/分行1", 9, UnitPhase.STOPPED, UnitProgress(-1, 0)),
    UnitStatus("u", 2**63 - 1, UnitPhase.ABSENT),
    *(UnitStatus("u", 1, state) for state in (UnitPhase.PREPARING, UnitPhase.PREPARED, UnitPhase.STOPPING)),
)

MESSAGES: Mapping[str, wire.FromAgent | wire.FromLeader] = {
    "opening": wire.Opening("agent-1", "5f0c"),
    "hello": core.Hello(HEADER, "agent-1", "host-7:1"),
    "sync": core.Sync(
        HEADER, "agent-1", 1.5, STATUSES[:1], STATUSES[1:2], STATUSES[2:3], Liveness.STOPPING, CONFIG, "0.1.0"
    ),
    "heartbeat": core.Heartbeat(
        HEADER,
        "agent-1",
        123.25,
        STATUSES,
        Liveness.ALIVE,
        CONFIG,
        core.FileAnswer(18, "", ("c.yaml:3: wrong",)),
        SlotReport(2, 4, 180, 2, {"host-b": "ModuleNotFoundError: No module named 'consumer'"}),
    ),
    "dispatch-response": core.DispatchResponse(HEADER, "agent-1", 17, STATUSES[0], UnitOperation.START),
    "dispatch-response-unasked": core.DispatchResponse(HEADER, "agent-1", 0, STATUSES[1]),
    "checkpoint": core.Checkpoint(HEADER, "agent-1", ((UNIT, 9, MARK), ("u", 10, UnitProgress(1, 2)))),
    "rejected": core.Rejected(HEADER, "agent-1", 812_346),
    "serving": wire.Serving(812_345),
    "not-leader": wire.NotLeader(812_346, "h:7070"),
    "announce": core.Announce(HEADER, "coordinator-1", "host-7:1", 1.0, 10.0),
    "heartbeat-response": core.HeartbeatResponse(
        HEADER,
        123.25,
        10.0,
        1.0,
        ((UNIT, 9), ("u", 10)),
        True,
        CONFIG,
        18,
        OldestAgents("0.2.0", ("agent-1", "agent-2")),
    ),
    "dispatch": core.Dispatch(HEADER, UNIT, UnitOperation.PREPARE, MARK, 123.25, 10.0),
    "dispatch-start": core.Dispatch(HEADER, UNIT, UnitOperation.START),
    "dispatch-remove": core.Dispatch(HEADER, UNIT, UnitOperation.REMOVE),
    "dispatch-forget": core.Dispatch(HEADER, UNIT, UnitOperation.FORGET),
    "superseded": core.Superseded(HEADER),
}
UP = {kind.__name__ for kind in wire.FromAgent.__args__}
LEADER = LeaderInfo(812_345, "h:7070", "h:8080", mine=True)


def encoded() -> dict[str, bytes]:
    """Return what this program says, by the name of its golden file."""
    frames = {name: wire.encode_frame([message]) for name, message in MESSAGES.items()}
    return {**frames, "question": wire.put_question(), "leader": wire.put_leader(LEADER)}


def files(name: str) -> list[Path]:
    """Return the golden files of a message, the oldest first."""
    first = FOLDER / f"{name}.json"
    later = sorted(FOLDER.glob(f"{name}.[0-9]*.json"), key=lambda path: int(path.suffixes[-2][1:]))
    return [first, *later] if first.exists() else later


def golden(name: str) -> bytes:
    """Return the bytes of the newest golden file."""
    return content(files(name)[-1])


def content(path: Path) -> bytes:
    """Return the bytes of a golden file, whose other half has the same in plain text."""
    name = path.name
    kept = json.loads(path.read_text())
    data = bytes.fromhex(kept["bytes"])
    assert msgspec.msgpack.decode(data) == kept["says"], name
    return data


def plain(data: bytes) -> Any:
    """Return bytes as lists, words and numbers."""
    return msgspec.msgpack.decode(data)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in encoded().items():
        there = files(name)
        if there and content(there[-1]) == data:
            continue
        new = FOLDER / (f"{name}.{len(there) + 1}.json" if there else f"{name}.json")
        output = json.dumps(plain(data), ensure_ascii=False)
        new.write_text(f'{{"says": {output},\n "bytes": "{data.hex()}"}}\n')


if __name__ == "__main__":
    main()
