"""Targets treat Oracle's values (tests/golden/oracle_held.jsonl, seen on servers) as the how-to describes:
they hold all but the named refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kits.oracle_values import GOLDEN, KINDS, Case, cases, name_of, value_of

HELD: dict[str, dict[str, Any]] = {
    line["name"]: line for line in map(json.loads, (GOLDEN / "oracle_held.jsonl").read_text().splitlines())
}


def refused(case: Case, kind: str) -> bool:
    """Return whether the how-to lists the value as refused by this kind of target
    (docs/how-to/oracle-source.md, Values)."""
    value, my = value_of(case), kind in ("mysql", "mariadb")
    match case["kind"]:
        case "datetime":
            return str(value).startswith("-")
        case "timestamp":
            return str(value).startswith("-") or (
                my and not "1970-01-01T00:00:01" <= str(value) < "2038-01-19T03:14:08"
            )
        case "double" | "float":
            return my and isinstance(value, str)
        case "decimal":
            whole, _, fraction = str(value).lstrip("-").partition(".")
            return (
                my and (len(fraction) > 30 or len(whole) > 35) and case["targets"]["mysql"].endswith(",30)")
            )
        case "varchar":
            return kind == "postgres" and "\0" in str(value)
    return False


def test_every_row_of_the_type_table_was_seen_on_every_target() -> None:
    assert list(HELD) == [name_of(case) for case in cases()]
    assert all(kind in line for line in HELD.values() for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_what_the_how_to_says(kind: str) -> None:
    reported = {name_of(case) for case in cases() if refused(case, kind)}
    assert reported == {name for name, line in HELD.items() if str(line[kind]).startswith("refused: ")}
    assert reported, f"{kind} refuses nothing: the cases have none of its ends"


def test_a_topic_refuses_what_debeziums_form_cannot_say_alone() -> None:
    for name, line in HELD.items():
        for word in ("rowlock", "plain", "canal-json"):
            assert not str(line.get(word, "")).startswith("refused: "), name
        for word in ("debezium", "debezium-schemas"):
            bc = name in {
                name_of(case)
                for case in cases()
                if refused(case, "postgres") and "\0" not in str(value_of(case))
            }
            assert str(line.get(word, "")).startswith("refused: ") == bc, name
