"""The messages' bytes: pinned by golden files, bounded field by field, and refused with one kind of error
where they are none of ours."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.core import messages as core
from coordinator.core.messages import PROTOCOL_VERSION, Header, Liveness, UnitStatus
from coordinator.transport import wire
from coordinator.transport.events import LeaderInfo
from coordinator.transport.wire import WireError
from schemas.units import UnitOperation, UnitPhase, UnitProgress
from tests.wire_golden import FOLDER, LEADER, MESSAGES, STATUSES, UP, content, encoded, files, golden, plain

#: A loaded machine may be slow.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
numbers = st.integers(0, 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
seconds = st.floats(allow_nan=False)
headers = st.builds(Header, numbers, numbers, numbers, numbers)
positions = st.tuples(numbers, numbers, numbers, st.integers(-(2**53) - 2, 2**53))
marks = st.builds(UnitProgress, st.integers(-(2**63), 2**63 - 1), numbers, st.none() | positions)
statuses = st.builds(
    UnitStatus,
    words,
    numbers,
    st.sampled_from(UnitPhase),
    st.none() | marks,
    numbers,
    st.none() | words,
    st.integers(0, 2**31),
)
many = st.lists(statuses, max_size=5).map(tuple)
liveness = st.sampled_from(Liveness)
ops = st.sampled_from(UnitOperation)

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
downs: st.SearchStrategy[wire.FromLeader] = st.one_of(
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
READERS: tuple[Callable[[bytes], object], ...] = (
    wire.decode_agent_frame, wire.decode_leader_frame, wire.get_leader, wire.check_question,
)  # fmt: skip
GOLDEN = {name: golden(name) for name in encoded()}


def read(name: str, data: bytes) -> object:
    """Return what the reader of this golden file's direction makes of bytes."""
    if name == "leader":
        return wire.get_leader(data)
    if name == "question":
        return wire.check_question(data)
    return (wire.decode_agent_frame if type(MESSAGES[name]).__name__ in UP else wire.decode_leader_frame)(
        data
    )


def written(frame: object) -> bytes:
    return msgspec.msgpack.encode(frame)


# what is said arrives


@given(st.lists(ups, max_size=4), st.lists(downs, max_size=4))
@settings(PATIENT, max_examples=300)
def test_frames_keep_messages_and_their_order(up: list[wire.FromAgent], down: list[wire.FromLeader]) -> None:
    assert wire.decode_agent_frame(wire.encode_frame(up)) == up
    assert wire.decode_leader_frame(wire.encode_frame(down)) == down


@given(st.builds(LeaderInfo, numbers, words, words, st.booleans()))
@settings(PATIENT, max_examples=20)
def test_leader_round_trip(leader: LeaderInfo) -> None:
    assert wire.get_leader(wire.put_leader(leader)) == leader


# golden files


def test_every_kind_of_message_has_a_golden_file() -> None:
    kinds = {kind.__name__ for union in (wire.FromAgent, wire.FromLeader) for kind in union.__args__}
    assert {type(message).__name__ for message in MESSAGES.values()} == kinds
    assert set(FOLDER.iterdir()) == {path for name in encoded() for path in files(name)}


@pytest.mark.parametrize("word", [*UnitPhase, *UnitOperation, *Liveness])
def test_every_word_is_in_a_golden_file(word: UnitPhase | UnitOperation | Liveness) -> None:
    assert word in {one for message in MESSAGES.values() for one in enums(message)}


def enums(value: Any) -> Iterator[enum.Enum]:
    """Yield every word of an enumeration in a message."""
    if isinstance(value, enum.Enum):
        yield value
    elif isinstance(value, tuple | msgspec.Struct):
        for part in value if isinstance(value, tuple) else msgspec.structs.astuple(value):
            yield from enums(part)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_encoding_is_the_golden_one(name: str) -> None:
    """A difference is a change of the protocol: tests/wire_golden.py describes what may be changed, and
    how."""
    assert encoded()[name] == GOLDEN[name]
    expected = {"leader": LEADER, "question": None}.get(name, [MESSAGES.get(name)])
    assert read(name, GOLDEN[name]) == expected


def begins_with(message: Any, old: Any) -> bool:
    """Return whether plain lists are those of an older release, but for fields at their ends."""
    if isinstance(old, list) and isinstance(message, list):
        return len(old) <= len(message) and all(map(begins_with, message, old))
    return bool(message == old)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_older_golden_files_are_read_whole(name: str) -> None:
    for path in files(name):
        (message,) = cast(list[Any], read(name, content(path)))
        assert begins_with(plain(wire.encode_frame([message])), plain(content(path))), path


def test_a_message_that_lacks_a_field_of_an_older_one_is_found() -> None:
    assert begins_with([2, [["Hello", [1, 0], "a"]]], [2, [["Hello", [1], "a"]]])
    assert not begins_with([2, [["Hello", [1]]]], [2, [["Hello", [1], "a"]]])
    assert not begins_with([2, [["Hello", [1], "b"]]], [2, [["Hello", [1], "a"]]])


# versions


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_fields_of_a_later_release_are_ignored(name: str) -> None:
    version, (message,) = plain(GOLDEN[name])
    later = [version, [[*message, {"new": [1, None]}, b"x"]], "more"]
    assert read(name, written(later)) == [MESSAGES[name]]


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_fields_that_an_earlier_release_leaves_out_have_their_default(name: str) -> None:
    version, (message,) = plain(GOLDEN[name])
    fields = msgspec.structs.fields(MESSAGES[name])
    required = sum(field.required for field in fields)
    earlier = read(name, written([version, [message[: 1 + required]]]))
    assert isinstance(earlier, list)
    assert type(earlier[0]) is type(MESSAGES[name])
    with pytest.raises(WireError, match="bytes that are no frame"):
        read(name, written([version, [message[:required]]]))


def test_an_unknown_kind_is_left_out_of_a_frame() -> None:
    known = core.Rejected(Header(1, 2, 0, 3), "a", 9)
    assert wire.decode_agent_frame(written([PROTOCOL_VERSION, [["Later", 1, {}], known, ["Later"]]])) == [
        known
    ]
    assert wire.decode_leader_frame(written([PROTOCOL_VERSION, [["Later", 1]]])) == []
    assert wire.decode_leader_frame(written([PROTOCOL_VERSION, [known]])) == [], "nobody says this downwards"
    with pytest.raises(WireError, match=r"no frame: .*Expected `str`, got `int`"):
        wire.decode_agent_frame(
            written([PROTOCOL_VERSION, [["Later", 1], ["Hello", plain(written(known.header)), 1, "i"]]])
        )


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rest", [[], [[["Hello"]]], [{"anything": 1}, 2], [[[[1]]]]])
@pytest.mark.parametrize("version", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1, 127])
def test_another_version_is_refused_and_both_are_named(
    reader: Callable[[bytes], object], rest: list[object], version: int
) -> None:
    output = rf"of version {version} of the protocol, and this side speaks version {PROTOCOL_VERSION}: "
    with pytest.raises(WireError, match=output):
        reader(written([version, *rest]))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "first",
    [
        b"",  # who leads? or: nobody is known to
        b"\x08\x05",  # who leads, of term 5 or later?
        b"\x0a\x02\x28\x01\x12\x01a\x1a\x03\x0a\x01x",  # an opening
        b"\x52\x02\x0a\x00",  # several messages
        b"\xff\xff",
    ],
)
def test_version_1_was_protobuf_and_is_told_so(reader: Callable[[bytes], object], first: bytes) -> None:
    output = f"version 1 of the protocol, or none, and this side speaks version {PROTOCOL_VERSION}"
    with pytest.raises(WireError, match=output):
        reader(first)


# bounds


def integers(kind: msgspec.inspect.Type, path: str) -> Iterator[tuple[str, msgspec.inspect.IntType]]:
    """Yield every integer in a type, with where it stands."""
    match kind:
        case msgspec.inspect.IntType():
            yield path, kind
        case msgspec.inspect.StructType(fields=fields):
            for field in fields:
                yield from integers(field.type, f"{path}.{field.name}")
        case msgspec.inspect.UnionType(types=inner) | msgspec.inspect.TupleType(item_types=inner):
            for one in inner:
                yield from integers(one, path)
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            yield from integers(item, path)


KINDS = [*wire.FromAgent.__args__, *wire.FromLeader.__args__, LeaderInfo]
INTEGERS = [found for kind in KINDS for found in integers(msgspec.inspect.type_info(kind), kind.__name__)]


def test_every_integer_of_every_message_is_bounded() -> None:
    assert len(INTEGERS) > 80
    for path, kind in INTEGERS:
        bounds = (0, 2**32 - 1) if path.endswith(".steps") else (-(2**63), 2**63 - 1)
        assert (kind.ge, kind.le) == bounds, path


def leaves(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield where the numbers of plain lists stand, but for the version."""
    for index, part in enumerate(value):
        if isinstance(part, list):
            yield from leaves(part, (*path, index))
        elif type(part) is int and (path or index):
            yield (*path, index)


def spoiled(value: Any, path: tuple[int, ...], new: object) -> bytes:
    value = copy.deepcopy(value)
    at = value
    for index in path[:-1]:
        at = at[index]
    at[path[-1]] = new
    return written(value)


PLACES = [(name, path) for name in sorted(GOLDEN) for path in leaves(plain(GOLDEN[name]))]
#: Where `steps` of the first status stands: its bounds are others.
STEPS = {("heartbeat", (1, 0, 4, n, 6)) for n in range(len(STATUSES))} | {
    ("sync", (1, 0, 4 + n, 0, 6)) for n in range(3)
}
STEPS |= {(f"dispatch-response{which}", (1, 0, 4, 6)) for which in ("", "-unasked")}


@pytest.mark.parametrize(("name", "path"), PLACES)
def test_a_number_beyond_its_bounds_is_refused(name: str, path: tuple[int, ...]) -> None:
    value = plain(GOLDEN[name])
    least, most = (0, 2**32 - 1) if (name, path) in STEPS else (-(2**63), 2**63 - 1)
    for fits in (least, most):
        read(name, spoiled(value, path, fits))
    wrong = [most + 1, 2**64 - 1, True, 1.5, "1", None, [1]]
    if least == 0:
        wrong.append(-1)
    for one in wrong:
        with pytest.raises(WireError, match="bytes that are no"):
            read(name, spoiled(value, path, one))


def test_every_place_of_a_status_is_among_them() -> None:
    assert set(PLACES) >= STEPS
    assert len(PLACES) > 90


def test_a_frame_holds_so_many_messages_at_most() -> None:
    reported = [core.Superseded(Header(1, 2, 0, number)) for number in range(wire.FRAME + 1)]
    assert wire.decode_leader_frame(wire.encode_frame(reported[1:])) == reported[1:]
    for frame in (wire.encode_frame(reported), written([PROTOCOL_VERSION, [["Later"]] * (wire.FRAME + 1)])):
        with pytest.raises(WireError, match="length <= 256"):
            wire.decode_leader_frame(frame)


# what is none of ours

HEAD = b"\x92" + bytes([PROTOCOL_VERSION])
CLAIMS = {
    "an array of 4 thousand million": b"\xdd\xff\xff\xff\xff",
    "an array of 65 thousand": b"\xdc\xff\xff",
    "a text of 4 thousand million bytes": b"\x91\x92\xa5Hello\xdb\xff\xff\xff\xff",
    "a map of 4 thousand million": b"\x91\xdf\xff\xff\xff\xff",
    "bytes of 4 thousand million": b"\x91\x92\xa5Later\xc6\xff\xff\xff\xff",
    "an extension of 4 thousand million bytes": b"\x91\x92\xa5Later\xc9\xff\xff\xff\xff\x01",
    "many statuses": b"\x91\x95\xa9Heartbeat\x92\x01\x02\xa1a\x01\xdd\xff\xff\xff\xff",
}
DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize("claim", list(CLAIMS))
def test_a_false_length_is_refused(claim: str) -> None:
    for reader in (wire.decode_agent_frame, wire.decode_leader_frame):
        with pytest.raises(WireError):
            reader(HEAD + CLAIMS[claim])


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_depth_without_end_is_refused(name: str) -> None:
    """Nobody reads a field that is not known, and it has to be passed over all the same."""
    data = GOLDEN[name]
    if name != "question":
        with pytest.raises(WireError):
            read(name, HEAD + DEEP)
    if name in MESSAGES:
        deeper = bytes([data[0], data[1], data[2], data[3] + 1]) + data[4:] + DEEP
        with pytest.raises(WireError, match="recursion"):
            read(name, deeper)


def test_text_that_is_none_is_refused() -> None:
    data = GOLDEN["hello"].replace(b"agent-1", b"agent-\xff")
    with pytest.raises(WireError, match=r"can't decode byte 0xff|Invalid UTF-8"):
        wire.decode_agent_frame(data)


@pytest.mark.parametrize(
    ("spoil", "output"),
    [
        (lambda m: m.__setitem__(1, None), "Expected `array`, got `None`"),
        (lambda m: m[4][0].__setitem__(2, "asleep"), "Invalid enum value 'asleep'"),
        (lambda m: m[4][0][3][2].append(7), "length 4, got 5"),
        (lambda m: m[4][0][3].__setitem__(2, []), "length 4, got 0"),
        (lambda m: m[4].append([]), "length 3"),
        (lambda m: m.__setitem__(5, "gone"), "Invalid enum value 'gone'"),
        (lambda m: m.__setitem__(0, 7), "Expected `str`, got `int`"),
    ],
)
def test_what_cannot_be_meant_is_refused(spoil: Callable[[Any], object], output: str) -> None:
    version, (message,) = plain(GOLDEN["heartbeat"])
    spoil(message)
    with pytest.raises(WireError, match=output):
        wire.decode_agent_frame(written([version, [message]]))


def test_what_is_wrong_with_a_message_is_not_repeated_at_any_length() -> None:
    with pytest.raises(WireError, match="Invalid enum value 'xxx") as refused:
        wire.decode_agent_frame(GOLDEN["heartbeat"].replace(b"\xa5alive", b"\xda\xff\xff" + b"x" * 0xFFFF))
    assert len(str(refused.value)) < 300


def only_wire_errors(data: bytes) -> None:
    for reader in READERS:
        try:
            reader(data)
        except WireError:
            continue


@given(st.binary(max_size=200), st.booleans())
@settings(PATIENT, max_examples=500)
def test_random_bytes_raise_nothing_else(data: bytes, headed: bool) -> None:
    only_wire_errors(HEAD + data if headed else data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A golden file with some of its bytes changed, taken away, repeated, or those of another in their
    place."""
    data = bytearray(draw(st.sampled_from(sorted(GOLDEN.values()))))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 8)))
        other = draw(st.sampled_from(sorted(GOLDEN.values())))
        cut = draw(st.integers(0, len(other)))
        choices = [b"", bytes(data[at:until]) * 2, other[cut : cut + 12]]
        data[at:until] = draw(st.binary(max_size=6) | st.sampled_from(choices))
    return bytes(data)


@given(mutated())
@settings(PATIENT, max_examples=1000)
def test_mutated_messages_raise_nothing_else(data: bytes) -> None:
    only_wire_errors(data)


@st.composite
def nested(draw: st.DrawFn) -> bytes:
    """A golden message with any value in the place of any of its parts: well-formed msgpack, and wrong."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63),
         2**64 - 1) | st.floats() | words | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
        max_leaves=8,
    )  # fmt: skip
    value = plain(GOLDEN[draw(st.sampled_from(sorted(GOLDEN)))])
    at = value
    while at and isinstance(at[index := draw(st.integers(0, len(at) - 1))], list) and draw(st.booleans()):
        at = at[index]
    if at:
        at[index] = draw(anything)
    return written(value)


@given(nested())
@settings(PATIENT, max_examples=500)
def test_wrong_values_raise_nothing_else(data: bytes) -> None:
    only_wire_errors(data)
