"""Names of tables' topics: unique for every set of tables in every order, kept for ever, and readable again
(docs/adr/0034)."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import EnvelopeError
from schemas.table.names import TableName
from schemas.wire.codec import decode_stored_position, encode_stored_position
from schemas.wire.records import (
    Anchor,
    Identity,
    StoredPosition,
    format_former_table_topic,
    parse_topic_origin,
    unescape_topic_part,
)
from schemas.wire.topic_names import (
    TOPIC_LENGTH,
    TopicNames,
    as_stored,
    normalize_topic,
    parse_stored_names,
    yield_topic_candidates,
)

RECORD = StoredPosition(
    source="s", gen=4, epoch=0, file="binlog.000003", pos=500, ts_ms=7,
    identity=Identity(server_uuid="u", server_id=1, version="9", gtid_set=None),
)  # fmt: skip
LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")

PIECES = st.sampled_from(
    ["a", "b", "A", "_", ".", "-", "$", "_x2e_", "_x5f_", "x2e_", "_x2e", "账", "é", " ", "watermark"]
)
ANY = st.one_of(
    st.lists(PIECES, min_size=1, max_size=5).map("".join),
    st.sampled_from(["账" * 64, "é" * 64, "x" * 64, "." * 64, "_x2e_" * 12, "watermark", "position", "copy",
     "control", "audit"]),
    st.text(st.characters(min_codepoint=1, max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1,
     max_size=64),
)  # fmt: skip
TABLES = st.tuples(ANY, ANY)


class Kafka:
    """Topics of a cluster, which refuses what Kafka refuses. `owners`: of topics that have events, the
    table."""

    def __init__(self, *topics: str) -> None:
        self.topics = dict.fromkeys(topics)
        self.owners: dict[str, tuple[str, TableName]] = {}

    def make(self, topic: str) -> None:
        assert LEGAL.fullmatch(topic), topic
        others = {normalize_topic(other) for other in self.topics if other != topic}
        assert normalize_topic(topic) not in others, f"{topic} collides"
        self.topics[topic] = None


def started(kafka: Kafka, stored: bytes | None, prefix: str, source: str) -> TopicNames:
    """Return names as a start of capture has them, from what is stored and from the topics."""
    record = decode_stored_position(stored) if stored else None
    names = TopicNames(prefix, source, {} if record is None else parse_stored_names(record, prefix)[0])
    names.update_existing(kafka.topics)
    for topic in names.list_unassigned():
        owner = kafka.owners.get(topic)
        if owner is None:
            names.owners[topic] = None
        elif owner[0] == source:
            names.owners[topic] = owner[1]
    return names


@given(
    st.lists(st.tuples(st.sampled_from(["s", "s_a", "s-a"]), TABLES, st.sampled_from(["go on", "restart", "crash before the record", "crash before the topic", "foreign"])), max_size=14),  # noqa: E501
    st.sampled_from(["p", "p.s", "p_s", "p" * 80, "."]),
    st.lists(st.sampled_from(["p.s.a.b", "p.s_a.b", "p_s_a_b", "p.s.a_b.a"]), max_size=2),
)  # fmt: skip
def test_no_two_tables_share_a_topic_or_a_name_that_kafka_takes_for_the_same(
    steps: list[tuple[str, TableName, str]], prefix: str, foreign: list[str]
) -> None:
    kafka, running, stored = Kafka(), dict[str, TopicNames](), dict[str, bytes]()
    for topic in foreign:
        if normalize_topic(topic) not in map(normalize_topic, kafka.topics):
            kafka.make(topic)
            kafka.owners[topic] = ("", ("", ""))
    first: dict[tuple[str, TableName], str] = {}
    for source, table, what in steps:
        names = running.get(source)
        if names is None or what == "restart":
            names = running[source] = started(kafka, stored.get(source), prefix, source)
        names.update_existing(kafka.topics)
        topic = names.assign_name(table)
        if what != "crash before the record":
            stored[source] = encode_stored_position(
                msgspec.structs.replace(RECORD, source=source, topics=as_stored(names.assigned))
            )
        if what != "crash before the topic":
            kafka.make(topic)
            if what != "crash before the record":
                kafka.owners[topic] = (source, table)
                assert first.setdefault((source, table), topic) == topic, "a table that has a topic keeps it"
        if what.startswith("crash"):
            del running[source]
    assert len(set(first.values())) == len(first)
    assert len({normalize_topic(topic) for topic in first.values()}) == len(first)
    for source in stored:
        again = started(kafka, stored[source], prefix, source)
        again.update_existing(kafka.topics)
        for (owner, table), topic in first.items():
            if owner == source:
                assert again.assign_name(table) == topic
                assert parse_topic_origin(topic) == (prefix, source)


@given(TABLES)
def test_the_usual_name_shows_database_and_table(table: TableName) -> None:
    usual = next(yield_topic_candidates("p", "s", table))
    if re.search(r"-[0-9a-f]{16}$", usual) is None:
        assert tuple(map(unescape_topic_part, usual.split(".")[2:])) == table


@given(TABLES, st.sampled_from(["p", "p" * 80]), st.sampled_from(["s", "s" * 64]))
def test_every_candidate_is_a_name_that_kafka_takes(table: TableName, prefix: str, source: str) -> None:
    names = yield_topic_candidates(prefix, source, table)
    seen = [next(names) for _ in range(4)]
    assert all(LEGAL.fullmatch(topic) and len(topic) <= TOPIC_LENGTH for topic in seen)
    assert all(parse_topic_origin(topic) == (prefix, source) for topic in seen)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        (("bank", "acct"), "p.s.bank.acct"),
        (("bank", "a.b"), "p.s.bank.a_x2e_b"),
        (("bank", "a_x2e_b"), "p.s.bank.a_x5f_x2e_b"),
        (("bank", "_x2e_x2e_"), "p.s.bank._x5f_x2e_x5f_x2e_"),
        (("bank", "_x41."), "p.s.bank._x5f_x41_x2e_"),
        (("bank", "a_xyz_b"), "p.s.bank.a_xyz_b"),
    ],
)
def test_usual_names_are_as_before_but_for_literal_escapes(table: TableName, topic: str) -> None:
    assert next(yield_topic_candidates("p", "s", table)) == topic


@pytest.mark.parametrize("table", ["watermark", "position", "copy", "control", "audit"])
def test_a_table_named_like_an_own_topic_gets_a_suffix(table: str) -> None:
    assert re.fullmatch(
        rf"r\.x\.db\.{table}-[0-9a-f]{{16}}", next(yield_topic_candidates("r", "x", ("db", table)))
    )


def test_names_that_kafka_takes_for_the_same_get_a_suffix() -> None:
    names = TopicNames("p", "s")
    names.update_existing([])
    assert names.assign_name(("bank", "eu_acct")) == "p.s.bank.eu_acct"
    assert re.fullmatch(r"p\.s\.bank_eu\.acct-[0-9a-f]{16}", names.assign_name(("bank_eu", "acct")))


def test_a_topic_of_somebody_else_is_left_alone() -> None:
    names = TopicNames("p", "s")
    names.update_existing(["p.s.bank.acct", "p_s_bank_t"])
    assert names.assign_name(("bank", "acct")) != "p.s.bank.acct"
    assert names.assign_name(("bank", "t")) != "p.s.bank.t"


@pytest.mark.parametrize("owner", [None, ("bank", "acct")])
def test_an_empty_topic_and_one_of_the_table_are_used(owner: TableName | None) -> None:
    names = TopicNames("p", "s", owners={"p.s.bank.acct": owner})
    names.update_existing(["p.s.bank.acct"])
    assert names.assign_name(("bank", "acct")) == "p.s.bank.acct"


def test_a_table_keeps_a_topic_that_would_not_be_chosen_today() -> None:
    names = TopicNames(
        "p", "s", {("bank", "a_x2e_b"): "p.s.bank.a_x2e_b", ("db", "watermark"): "p.s.db.watermark"}
    )
    names.update_existing(["p.s.bank.a_x2e_b", "p.s.db.watermark"])
    assert names.assign_name(("bank", "a_x2e_b")) == "p.s.bank.a_x2e_b"
    assert names.assign_name(("db", "watermark")) == "p.s.db.watermark"


def test_a_name_that_another_table_keeps_is_not_free_while_its_topic_is_missing() -> None:
    names = TopicNames("p", "s", {("bank", "a_x2e_b"): "p.s.bank.a_x2e_b"})
    names.update_existing([])
    assert names.assign_name(("bank", "a.b")) != names.assign_name(("bank", "a_x2e_b")) == "p.s.bank.a_x2e_b"


def test_a_topic_with_events_of_the_table_is_found_under_any_name() -> None:
    names = TopicNames("p", "s", owners={"p.s.bank.a_x2e_b": ("bank", "a_x2e_b")})
    names.update_existing(["p.s.bank.a_x2e_b"])
    assert names.assign_name(("bank", "a.b")) != "p.s.bank.a_x2e_b"
    assert names.assign_name(("bank", "a_x2e_b")) == "p.s.bank.a_x2e_b"


def test_a_name_without_a_topic_is_chosen_again_where_another_topic_took_it() -> None:
    """Two sources choose at the same time; Kafka takes the first."""
    names = TopicNames("p", "s")
    names.update_existing([])
    assert names.assign_name(("a", "b_c")) == "p.s.a.b_c"
    names.update_existing(["p.s_a.b.c"])
    assert names.assign_name(("a", "b_c")).startswith("p.s.a.b_c-")


def test_a_refused_name_is_released() -> None:
    """Kafka has a topic that its user may not see; later it shows whose events are in it."""
    names = TopicNames("p", "s")
    names.update_existing([])
    refused = names.assign_name(("a", "b"))
    names.mark_refused(refused)
    assert names.assign_name(("a", "b")) != refused
    names.note_created([refused])
    assert names.list_unassigned() == [refused]


def test_a_record_without_names_gives_the_computed_ones_of_the_tables_that_it_knows() -> None:
    anchors = {"bank.acct": Anchor(end=3), "bank.`a.b`": Anchor(end=3), "bank.a_x2e_b": Anchor(end=3)}
    names, shared = parse_stored_names(msgspec.structs.replace(RECORD, anchors=anchors), "p")
    assert names == {("bank", "acct"): "p.s.bank.acct"}
    assert shared == {"p.s.bank.a_x2e_b": [("bank", "a.b"), ("bank", "a_x2e_b")]}


@pytest.mark.parametrize(
    ("topics", "older_reads"),
    [
        ({"bank.acct": "p.s.bank.acct", "bank.`a.b`": "p.s.bank.a_x2e_b"}, True),
        ({"bank.acct": "p.s.bank.acct", "bank.a_x2e_b": "p.s.bank.a_x5f_x2e_b"}, False),
        ({"bank_eu.acct": "p.s.bank_eu.acct-0123456789abcdef"}, False),
    ],
)
def test_a_record_with_names_that_older_versions_do_not_compute_stops_them(
    topics: dict[str, str], older_reads: bool
) -> None:
    raw = encode_stored_position(record := msgspec.structs.replace(RECORD, topics=topics))
    assert decode_stored_position(raw) == record
    try:
        msgspec.json.decode(raw, type=StoredPosition)  # all that older versions do
    except msgspec.DecodeError:
        assert not older_reads
    else:
        assert older_reads


def test_a_record_of_a_newer_format_is_refused_with_a_sentence() -> None:
    with pytest.raises(
        EnvelopeError,
        match=r"a newer version of rowlock wrote the position record \(format 5, .*: run that version",
    ):
        decode_stored_position(b'{"needs":5,"record":{"other":1}}')


def test_the_computed_name_is_as_it_was() -> None:
    assert format_former_table_topic("p", "s", "bank", "a.b账") == "p.s.bank.a_x2e_b_xe8b4a6_"
