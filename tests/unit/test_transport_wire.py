"""The core's messages survive the wire; what is unknown, newer or broken is told apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core import messages as core
from coordinator.core.messages import VERSION, Header, Liveness, Mark, Op, Reported, UnitStatus
from coordinator.transport import wire
from coordinator.transport.columns import WireError
from coordinator.transport.events import LeaderInfo
from schemas import coordination_pb2 as pb

ROOT = Path(__file__).parents[2]

numbers = st.integers(0, 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
seconds = st.floats(allow_nan=False)
headers = st.builds(Header, numbers, numbers, numbers, numbers, st.just(VERSION))
positions = st.tuples(numbers, numbers, numbers, st.integers(-(2**53) - 2, 2**53))
marks = st.builds(Mark, st.integers(-(2**63), 2**63 - 1), numbers, st.none() | positions)
statuses = st.builds(
    UnitStatus, words, numbers, st.sampled_from(Reported), st.none() | marks, numbers, st.none() | words
)
many = st.lists(statuses, max_size=5).map(tuple)
liveness = st.sampled_from(Liveness)
ops = st.sampled_from(Op)

ups: st.SearchStrategy[wire.FromAgent] = st.one_of(
    st.builds(wire.Opening, words, words),
    st.builds(core.Hello, headers, words, words),
    st.builds(core.Sync, headers, words, seconds, many, many, many, liveness),
    st.builds(core.Heartbeat, headers, words, seconds, many, liveness),
    st.builds(core.DispatchResponse, headers, words, numbers, statuses, st.none() | ops),
    st.builds(
        core.Checkpoint, headers, words, st.lists(st.tuples(words, numbers, marks), max_size=5).map(tuple)
    ),
    st.builds(core.Rejected, headers, words, numbers),
)
downs: st.SearchStrategy[wire.FromOwner] = st.one_of(
    st.builds(wire.Serving, numbers),
    st.builds(wire.NotLeader, numbers, words),
    st.builds(core.Announce, headers, words, words, seconds, seconds),
    st.builds(
        core.HeartbeatResponse, headers, seconds, seconds, seconds,
        st.lists(st.tuples(words, numbers), max_size=5).map(tuple), st.booleans(),
    ),
    st.builds(core.Dispatch, headers, words, ops, st.none() | marks, seconds, seconds),
    st.builds(core.Superseded, headers),
)  # fmt: skip


@given(ups)
@settings(max_examples=200)
def test_up_round_trip(message: wire.FromAgent) -> None:
    assert wire.decode_up(wire.encode_up(message)) == message


@given(downs)
@settings(max_examples=200)
def test_down_round_trip(message: wire.FromOwner) -> None:
    assert wire.decode_down(wire.encode_down(message)) == message


@given(st.lists(ups, min_size=1, max_size=4), st.lists(downs, min_size=1, max_size=4))
@settings(max_examples=50)
def test_frames_keep_messages_and_their_order(up: list[wire.FromAgent], down: list[wire.FromOwner]) -> None:
    assert wire.unframe_up(wire.frame_up(up)) == up
    assert wire.unframe_down(wire.frame_down(down)) == down


def test_every_kind_of_message_has_its_place() -> None:
    """A message that is new in the core, or in the format, and not in the other, is found here."""
    bodies = {field.name for field in pb.AgentMessage.DESCRIPTOR.oneofs_by_name["body"].fields}
    assert bodies == {*wire._UP, "several"}
    assert len(wire._UP) == len(wire.FromAgent.__args__)
    bodies = {field.name for field in pb.OwnerMessage.DESCRIPTOR.oneofs_by_name["body"].fields}
    assert bodies == {*wire._DOWN, "several"}
    assert len(wire._DOWN) == len(wire.FromOwner.__args__)


def test_unknown_fields_are_ignored() -> None:
    message = core.Heartbeat(Header(1, 2, 3, 4), "a", 5.0, (UnitStatus("u", 1, Reported.PREPARED),))
    later = b"\xfa\x3e\x03abc"  # field 1007, length-delimited: of a version to come
    assert wire.decode_up(wire.encode_up(message) + later) == message


def test_an_unknown_kind_of_our_version_is_left_out() -> None:
    nothing = pb.AgentMessage(header=pb.Header(owner_rev=1, version=VERSION), agent="a")
    assert wire.decode_up(nothing.SerializeToString()) is None
    known = core.Rejected(Header(1, 2, 0, 3), "a", 9)
    frame = pb.AgentMessage()
    frame.several.messages.add().CopyFrom(nothing)
    frame.several.messages.add().ParseFromString(wire.encode_up(known))
    assert wire.unframe_up(frame.SerializeToString()) == [known]
    empty = pb.OwnerMessage(header=pb.Header(owner_rev=1, version=VERSION))
    assert wire.decode_down(empty.SerializeToString()) is None


def test_of_a_newer_version_the_header_is_read_and_nothing_else() -> None:
    newer = Header(7, 8, 9, 10, VERSION + 1)
    up = pb.AgentMessage()
    up.ParseFromString(
        wire.encode_up(core.Heartbeat(newer, "a", 1.0, (UnitStatus("u", 1, Reported.PREPARED),)))
    )
    up.heartbeat.statuses.state[0] = 99  # a state that we cannot know
    read = wire.decode_up(up.SerializeToString())
    assert read is not None
    assert not isinstance(read, wire.Opening)
    assert (read.header, read.agent) == (newer, "a")
    down = wire.decode_down(pb.OwnerMessage(header=_header(newer)).SerializeToString())
    assert isinstance(down, core.Superseded)
    assert down.header == newer


def _header(header: Header) -> pb.Header:
    return pb.Header(owner_rev=header.owner_rev, agent_epoch=header.agent_epoch, unit_epoch=header.unit_epoch,
                     op_seq=header.op_seq, version=header.version)  # fmt: skip


def _beat() -> pb.AgentMessage:
    beat = core.Heartbeat(
        Header(1, 2), "a", 5.0, (UnitStatus("u", 1, Reported.PREPARED, Mark(1, 2, (0, 1, 2, 3))),)
    )
    out = pb.AgentMessage()
    out.ParseFromString(wire.encode_up(beat))
    return out


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda m: m.ClearField("header"), "without header"),
        (lambda m: m.heartbeat.statuses.epoch.append(5), "columns of"),
        (lambda m: m.heartbeat.statuses.state.__setitem__(0, 99), "state 99"),
        (lambda m: m.heartbeat.statuses.state.__setitem__(0, 0), "state 0"),
        (lambda m: m.heartbeat.statuses.marks.kind.__setitem__(0, 7), "unknown kind"),
        (lambda m: m.heartbeat.statuses.marks.kind.append(2), "columns of"),
        (lambda m: m.heartbeat.statuses.marks.position.append(7), "not 4 each"),
        (lambda m: m.dispatch_response.SetInParent(), "0 statuses"),
        (lambda m: setattr(m.dispatch_response, "operation", 44), "0 statuses"),
        (lambda m: m.checkpoint.units.unit.append("u"), "a checkpoint of 1 units"),
    ],
)
def test_what_cannot_be_meant_is_refused(spoil: object, says: str) -> None:
    message = _beat()
    spoil(message)  # type: ignore[operator]
    with pytest.raises(WireError, match=says):
        wire.decode_up(message.SerializeToString())


def test_bytes_that_are_no_message_are_refused() -> None:
    for decode in (wire.decode_up, wire.decode_down, wire.get_leader):
        with pytest.raises(WireError, match="3 bytes"):
            decode(b"\xff\xff\xff")
    with pytest.raises(WireError, match="without operation"):
        wire.decode_down(
            pb.OwnerMessage(header=pb.Header(version=1), dispatch=pb.Dispatch()).SerializeToString()
        )


@given(st.builds(LeaderInfo, numbers, words, words, st.booleans()))
@settings(max_examples=20)
def test_leader_round_trip(leader: LeaderInfo) -> None:
    assert wire.get_leader(wire.put_leader(leader)) == leader


def test_generated_code_is_what_the_format_generates(tmp_path: Path) -> None:
    """After a change of coordination.proto: the command in its first lines."""
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
         "schemas/coordination.proto"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    for name in ("coordination_pb2.py", "coordination_pb2.pyi"):
        assert (tmp_path / "schemas" / name).read_text() == (ROOT / "schemas" / name).read_text()
