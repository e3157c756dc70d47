"""Asking for a copy of a table: whose table it is, what is refused, what is shown of how far it is."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.rest.copies import Copy
from coordinator.server.operators.copies import CopyRefusedError, CopyRequested, DebtRow
from rowlock.commands import copying
from rowlock.commands.copying import build_copies_table, format_copy_progress
from rowlock.errors import KafkaUnreachableError
from rowlock.views import copy_desk
from rowlock.views.copy_desk import KafkaCopyDesk, copy_rows, estimate_remaining_s, parse_table_name
from schemas.config.model import Config, load_config
from schemas.problems import Problem, encode_problem
from schemas.wire.codec import decode_watermark
from schemas.wire.copies import CopyOutcome, CopyRequest, CopyState, RemovedRows

GOLDEN = Path(copy_desk.__file__).parents[2] / "schemas" / "golden" / "v1" / "record-watermark.json"
SOURCES = """
  {name}:
    type: mysql
    host: 127.0.0.1
    user: u
    password: p
    tables: [{tables}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    branches = "".join(
        SOURCES.format(name=name, tables=tables)
        for name, tables in (("b1", "bank.*"), ("b2", "bank.acct, shop.*"), ("d", "crm.*"))
    )
    file.write_text(f"kafka: {{bootstrap: 127.0.0.1:9}}\nsources:{branches}    events: debezium\n")
    return load_config(file)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, CopyRequest]]:
    found: list[tuple[str, CopyRequest]] = []
    monkeypatch.setattr(
        KafkaCopyDesk, "_send_request", lambda _, topic, request: found.append((topic, request))
    )
    return found


def test_a_request_goes_to_the_only_source_that_has_the_table(config: Config, sent: list[Any]) -> None:
    asked = CopyRequested("bank.transfer", where="id > 5", max_rows_per_second=100)
    taken = KafkaCopyDesk(config, lambda *_, **__: None).request_copy(asked, by="operator")
    ((topic, request),) = sent
    assert (taken.source, taken.table, topic) == ("b1", "bank.transfer", "rowlock.b1.copy")
    assert (request.id, request.db, request.table, request.by) == (taken.id, "bank", "transfer", "operator")
    assert (request.where, request.max_rows_per_second, request.limits) == ("id > 5", 100, None)


def test_of_several_sources_one_is_named(config: Config, sent: list[Any]) -> None:
    desk = KafkaCopyDesk(config, lambda *_, **__: None)
    with pytest.raises(CopyRefusedError) as refused:
        desk.request_copy(CopyRequested("bank.acct"), by="")
    assert refused.value.problem == Problem("bank.acct may be a table of b1, b2", "name one with --source")
    assert desk.request_copy(CopyRequested("bank.acct", source="b2", cancel=True), by="").source == "b2"
    assert desk.request_copy(
        CopyRequested("bank.acct", source="b2", max_rows_per_second=7, rate_only=True), by=""
    )
    (_, taken_back), (_, rate) = sent
    assert (taken_back.cancel, taken_back.rate_only) == (True, False)
    assert (rate.cancel, rate.rate_only, rate.max_rows_per_second) == (False, True, 7)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (CopyRequested("acct"), "is no table: database or table is missing: write database.table"),
        (CopyRequested("bank.acct", source="b9"), "there is no source 'b9': name one of b1, b2, d"),
        (CopyRequested("other.t"), "other.t is not among the `tables:` of any source: add it"),
        (CopyRequested("bank.transfer", source="b2"), "not among the `tables:` of source b2"),
        (
            CopyRequested("crm.person"),
            r'Debezium captures d.*the key rowlock\.d: .*"crm\.person".*VALUES \(UUID.*"blocking"}\'\)',
        ),
    ],
)
def test_what_cannot_be_copied_is_refused(
    config: Config, sent: list[Any], asked: CopyRequested, why: str
) -> None:
    with pytest.raises(CopyRefusedError, match=why):
        KafkaCopyDesk(config, lambda *_, **__: None).request_copy(asked, by="")
    assert not sent


def test_an_unknown_table_is_refused(config: Config, sent: list[Any]) -> None:
    asked = CopyRequested("bank.transfr")
    problem = Problem("source b1 has no table bank.transfr", "did you mean 'bank.transfer'?")
    with pytest.raises(CopyRefusedError, match=r"has no table bank\.transfr: did you mean"):
        KafkaCopyDesk(config, lambda *_, **__: problem).request_copy(asked, by="")

    def fail_reading(*_: object, **__: object) -> Problem:
        raise KafkaUnreachableError("Kafka does not answer", "start it")

    with pytest.raises(CopyRefusedError, match="Kafka does not answer: start it"):
        KafkaCopyDesk(config, fail_reading).request_copy(asked, by="")
    assert not sent


@pytest.mark.parametrize(
    ("asked", "must_exist"),
    [
        (CopyRequested("bank.transfer"), True),
        (CopyRequested("bank.transfer", cancel=True), False),
        (CopyRequested("bank.transfer", rate_only=True), False),
    ],
)
def test_only_a_new_copy_needs_the_table_at_the_source(
    config: Config, sent: list[Any], asked: CopyRequested, must_exist: bool
) -> None:
    seen: list[bool] = []

    def explain(*_: object, must_exist: bool) -> None:
        seen.append(must_exist)

    KafkaCopyDesk(config, explain).request_copy(asked, by="")
    assert (seen, len(sent)) == ([must_exist], 1)


def test_names_in_backticks() -> None:
    assert parse_table_name("bank.`a.b`") == ("bank", "a.b")
    assert parse_table_name("`my.db`.t") == ("my.db", "t")


def test_what_watermarks_say_of_copies() -> None:
    mark = decode_watermark(GOLDEN.read_bytes())
    (row,) = copy_rows({"b2": None, "b1": mark})
    assert (row.source, row.table, row.phase, row.rows, row.estimate) == (
        "b1",
        "bank.acct",
        "running",
        4000,
        120_000,
    )
    assert row.by == "pipeline to-hq"


def test_rows_that_targets_may_still_have_are_shown_with_their_statement() -> None:
    mark = decode_watermark(GOLDEN.read_bytes())
    sql, noon_ms = "ALTER TABLE acct DROP PARTITION p0", 1790856000000
    first = RemovedRows.build_from_statement((1, "mysql-bin.000002", 4), "", offset=6, since_ms=noon_ms)
    last = RemovedRows.build_from_statement((1, "mysql-bin.000002", 99), sql, offset=7, since_ms=noon_ms + 1)
    debt = last.add_statement(first)
    copies = {name: replace(state, keys=True, removed=debt) for name, state in mark.copies.items()}
    (row,) = copy_rows({"b1": replace(mark, copies=copies)})
    assert row.reason == (
        "2 statement(s) since 2026-10-01 12:00 UTC removed rows that targets may still have; "
        f"the last, at mysql-bin.000002:99: {sql}"
    )
    assert row.debt == DebtRow(sql, 2, "mysql-bin.000002:99", noon_ms)
    listed = Copy.model_validate(row).model_dump(by_alias=True)
    assert listed["debt"] == {
        "statement": sql, "statements": 2, "at": "mysql-bin.000002:99", "since_ms": noon_ms
    }  # fmt: skip


def test_the_copy_before_a_key_sweep_is_listed_too() -> None:
    """`rowlock copy --wait` waits for it."""
    mark = decode_watermark(GOLDEN.read_bytes())
    ((name, state),) = mark.copies.items()
    before = CopyOutcome(id="r1", db=state.db, table=state.table, by="operator", phase="done", requested_ms=1)
    swept = replace(state, id="d1", keys=True, last_copy=before)
    rows = copy_rows({"b1": replace(mark, copies={name: swept})})
    assert [(row.id, row.phase) for row in rows] == [("d1", "running"), ("r1", "done")]


def test_a_refused_copy_is_shown_with_its_remedy() -> None:
    """As one text, as the listings of REST and of `rowlock status` have it."""
    refusal = encode_problem(Problem("it is large", "rowlock copy bank.acct"))
    mark = decode_watermark(GOLDEN.read_bytes())
    copies = {name: replace(state, phase="refused", reason=refusal) for name, state in mark.copies.items()}
    (row,) = copy_rows({"b1": replace(mark, copies=copies)})
    assert row.reason == "it is large: rowlock copy bank.acct"


@pytest.mark.parametrize(
    ("phase", "rows", "estimate", "seconds"),
    [("running", 250, 1000, 30.0), ("running", 0, 1000, None), ("running", 9, None, None), ("done", 5, 9, None),  # noqa: E501
     ("running", 2000, 1000, 0.0)],
)  # fmt: skip
def test_how_long_it_will_take(phase: Any, rows: int, estimate: int | None, seconds: float | None) -> None:
    state = CopyState(
        id="1", db="d", table="t", by="operator", phase=phase, requested_ms=0, began_ms=1000, rows=rows,
        estimate=estimate
    )  # fmt: skip
    assert estimate_remaining_s(state, 11_000) == seconds


def _row(**more: object) -> dict[str, Any]:
    row = {
        "source": "b1", "table": "bank.acct", "id": "7", "phase": "running", "by": "operator", "cause": "",
        "rows": 4000, "estimate": 120_000, "eta_s": 12.0, "requested_ms": 0, "reason": "", "where": None,
    }  # fmt: skip
    return row | more


def test_progress_in_one_line() -> None:
    assert (
        format_copy_progress(_row()) == "bank.acct: running, 4,000 of about 120,000 rows, about 12.0 s left"
    )
    refused = _row(phase="refused", reason="too large: rowlock copy bank.acct")
    assert format_copy_progress(refused) == "bank.acct: refused: too large: rowlock copy bank.acct"
    assert "waiting" in format_copy_progress(None)


def test_reasons_of_copies_are_below_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [_row(), _row(table="bank.big", phase="refused", reason="too large: rowlock copy bank.big")]
    monkeypatch.setattr(copying, "load_config", lambda _: None)
    monkeypatch.setattr(copying.LeaderClient, "from_config", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(copying, "_fetch_copies", lambda _: rows)
    assert copying.show_copies(tmp_path, "table") == 1
    assert "reason" not in [column.header for column in build_copies_table(rows, 0).columns]
    assert capsys.readouterr().out.endswith("\n\nbank.big: too large: rowlock copy bank.big\n")


def test_json_of_a_row_is_what_rest_answers() -> None:
    from coordinator.rest.copies import Copy

    (row,) = copy_rows({"b1": decode_watermark(GOLDEN.read_bytes())})
    answered = json.loads(Copy.model_validate(row).model_dump_json())
    assert answered["phase"] == "running"
    assert set(answered) == set(Copy.model_fields)
