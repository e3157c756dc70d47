"""What a start does about findings: the smallest thing is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.inspect.scopes import (
    FindingScope,
    ScopedFinding,
    attach_source_scopes,
    explain_refused_start,
    list_consequences,
    list_not_started,
)
from schemas.findings import Finding

SOURCES = ("b1", "b2")
PIPELINES: dict[str, Any] = {
    "p": SimpleNamespace(sources=["b1", "b2"], target="hq"),
    "q": SimpleNamespace(sources=["b2"], target="lake"),
}


def error(scope: FindingScope, name: str = "", place: str = "somewhere") -> ScopedFinding:
    return ScopedFinding(Finding("error", place, "is wrong", "mend it"), scope, name)


def warning(scope: FindingScope, name: str = "") -> ScopedFinding:
    return ScopedFinding(Finding("warning", "somewhere", "is odd", ""), scope, name)


def refused(*found: ScopedFinding, all_needed: bool = False) -> bool:
    return explain_refused_start(found, SOURCES, PIPELINES, all_needed=all_needed) is not None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), False),
        ((error(FindingScope.EVERYTHING),), True),
        ((error(FindingScope.KAFKA),), True),
        ((warning(FindingScope.EVERYTHING), warning(FindingScope.SOURCE, "b2")), False),
        (
            (
                error(FindingScope.TABLE, "hq"),
                error(FindingScope.TABLE, "b1"),
                error(FindingScope.TABLE, "lake"),
            ),
            False,
        ),
        ((error(FindingScope.SOURCE, "b1"),), False),
        ((error(FindingScope.SOURCE, "b2"),), False),
        ((error(FindingScope.SOURCE, "b1"), error(FindingScope.SOURCE, "b2")), True),
        ((error(FindingScope.TARGET, "hq"),), False),
        ((error(FindingScope.TARGET, "hq"), error(FindingScope.TARGET, "lake")), True),
        ((error(FindingScope.TARGET, "hq"), error(FindingScope.SOURCE, "b2")), True),
        ((error(FindingScope.PIPELINE, "p"), error(FindingScope.TARGET, "lake")), True),
        ((error(FindingScope.PIPELINE, "p"),), False),
    ],
)
def test_a_start_is_refused_only_where_nothing_would_be_left(
    found: tuple[ScopedFinding, ...], expected: bool
) -> None:
    assert refused(*found) is expected


def test_without_pipelines_the_sources_decide() -> None:
    assert explain_refused_start([error(FindingScope.SOURCE, "b1")], SOURCES, {}) is None
    assert (
        explain_refused_start(
            [error(FindingScope.SOURCE, "b1"), error(FindingScope.SOURCE, "b2")], SOURCES, {}
        )
        is not None
    )


def test_what_shall_catch_up_needs_all_sources_and_targets_but_not_all_tables() -> None:
    assert not refused(error(FindingScope.TABLE, "hq"), all_needed=True)
    for scope in (FindingScope.SOURCE, FindingScope.TARGET, FindingScope.PIPELINE):
        assert refused(error(scope, "b1"), all_needed=True)
    assert not refused(warning(FindingScope.SOURCE, "b1"), all_needed=True)


def test_findings_of_a_source_s_tables_are_told_from_its_own_by_their_place() -> None:
    findings = [
        Finding("error", "source b1", "log_bin is OFF", ""),
        Finding("error", "source b1, table bank.acct", "has no key", ""),
        Finding("error", "c.yaml:7: sources.b1", "does not answer", ""),
    ]
    assert [each.scope for each in attach_source_scopes("b1", findings)] == [
        FindingScope.SOURCE,
        FindingScope.TABLE,
        FindingScope.SOURCE,
    ]


def test_what_nobody_looks_at_again_is_kept_from_starting() -> None:
    found = [
        error(FindingScope.SOURCE, "b1"),
        error(FindingScope.SOURCE, "b2"),
        error(FindingScope.PIPELINE, "p"),
        error(FindingScope.TARGET, "hq"),
        error(FindingScope.TABLE, "b2"),
        warning(FindingScope.SOURCE, "b2"),
        error(FindingScope.SOURCE, "b2"),
    ]
    assert list_not_started(found, debezium=["b2"]) == ["source/b2", "pipeline/p"]


def test_mixed_tables_are_named_and_the_rest_of_their_pipeline_starts() -> None:
    tables = (("b1", "bank.acct"), ("b1", "bank.two"))
    found = ScopedFinding(error(FindingScope.SHARED).finding, FindingScope.SHARED, "p", tables)
    assert not refused(found)
    assert refused(found, all_needed=True)
    assert list_not_started([found], []) == ["pipeline/p/b1/bank.acct", "pipeline/p/b1/bank.two"]
    (consequence,) = list_consequences([found])
    assert consequence.startswith("pipeline p does not apply b1:bank.acct and b1:bank.two until")


def test_each_consequence_is_named_once() -> None:
    found = [
        error(FindingScope.SOURCE, "b1"),
        error(FindingScope.SOURCE, "b1"),
        error(FindingScope.TABLE, "hq", "target table public.a"),
    ]
    one, two = list_consequences(
        [
            *found,
            warning(FindingScope.SOURCE, "b2"),
            error(FindingScope.EVERYTHING),
            error(FindingScope.KAFKA),
        ]
    )
    assert one.startswith("source b1 does not run")
    assert two.startswith("target table public.a is left out or stops")
