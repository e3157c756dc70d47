"""What stays of a stored definition where another one follows it, and what comes back from its text."""

from __future__ import annotations

from dataclasses import fields, replace

from consumer.tables.stored import StoredDefinition, decode_stored
from schemas.wire.copies import RemovedRows
from tests.kits.apply import account_table

BEFORE = StoredDefinition(
    account_table(), {"owner": "holder"}, ("old",), rows_missing=True, columns_stable_since=4, emptied_at=7,
    unmapped_columns=("note",), route_names={"owner": "holder"}, snapshot=(3, 9),
    removed=RemovedRows(id="d1", offset=5, ddl="ALTER TABLE acct DROP PARTITION p0", since_ms=7),
    has_kept_rows=True, sweep_since=8, target_place=("public", "acct"),
)  # fmt: skip
ANEW = {"table", "names", "retained_columns", "rows_missing", "emptied_at", "unmapped_columns"}
"""Fields that another definition says anew; each of the others stays."""


def test_each_field_is_what_the_next_definition_says_or_stays() -> None:
    bare = StoredDefinition(other := account_table(name="other"))
    after = BEFORE.build_successor(other)
    for field in fields(StoredDefinition):
        was = bare if field.name in ANEW else BEFORE
        assert getattr(after, field.name) == getattr(was, field.name), field.name
        assert getattr(BEFORE, field.name) != getattr(bare, field.name), "the field is set in this test"


def test_names_are_those_that_are_given() -> None:
    after = BEFORE.build_successor(BEFORE.table, {"note": "remark"}, ("gone",), ("version",))
    assert (after.names, after.retained_columns, after.unmapped_columns) == (
        {"note": "remark"},
        ("gone",),
        ("version",),
    )


def test_the_text_says_every_field() -> None:
    assert decode_stored(BEFORE.encode()) == BEFORE
    assert decode_stored(replace(BEFORE, names={}).encode()) == replace(BEFORE, names={})
