"""What a start does about findings: the smallest thing is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.inspect.scopes import Scope, ScopedFinding, consequences, not_started, of_source, refusal
from schemas.findings import Finding

SOURCES = ("b1", "b2")
PIPELINES: dict[str, Any] = {
    "p": SimpleNamespace(sources=["b1", "b2"], target="hq"),
    "q": SimpleNamespace(sources=["b2"], target="lake"),
}


def error(scope: Scope, name: str = "", place: str = "somewhere") -> ScopedFinding:
    return ScopedFinding(Finding("error", place, "is wrong", "mend it"), scope, name)


def warning(scope: Scope, name: str = "") -> ScopedFinding:
    return ScopedFinding(Finding("warning", "somewhere", "is odd", ""), scope, name)


def refused(*found: ScopedFinding, all_needed: bool = False) -> bool:
    return refusal(found, SOURCES, PIPELINES, all_needed=all_needed) is not None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), False),
        ((error(Scope.EVERYTHING),), True),
        ((warning(Scope.EVERYTHING), warning(Scope.SOURCE, "b2")), False),
        ((error(Scope.TABLE, "hq"), error(Scope.TABLE, "b1"), error(Scope.TABLE, "lake")), False),
        ((error(Scope.SOURCE, "b1"),), False),
        ((error(Scope.SOURCE, "b2"),), False),
        ((error(Scope.SOURCE, "b1"), error(Scope.SOURCE, "b2")), True),
        ((error(Scope.TARGET, "hq"),), False),
        ((error(Scope.TARGET, "hq"), error(Scope.TARGET, "lake")), True),
        ((error(Scope.TARGET, "hq"), error(Scope.SOURCE, "b2")), True),
        ((error(Scope.PIPELINE, "p"), error(Scope.TARGET, "lake")), True),
        ((error(Scope.PIPELINE, "p"),), False),
    ],
)
def test_a_start_is_refused_only_where_nothing_would_be_left(
    found: tuple[ScopedFinding, ...], expected: bool
) -> None:
    assert refused(*found) is expected


def test_without_pipelines_the_sources_decide() -> None:
    assert refusal([error(Scope.SOURCE, "b1")], SOURCES, {}) is None
    assert refusal([error(Scope.SOURCE, "b1"), error(Scope.SOURCE, "b2")], SOURCES, {}) is not None


def test_what_shall_catch_up_needs_all_sources_and_targets_but_not_all_tables() -> None:
    assert not refused(error(Scope.TABLE, "hq"), all_needed=True)
    for scope in (Scope.SOURCE, Scope.TARGET, Scope.PIPELINE):
        assert refused(error(scope, "b1"), all_needed=True)
    assert not refused(warning(Scope.SOURCE, "b1"), all_needed=True)


def test_findings_of_a_source_s_tables_are_told_from_its_own_by_their_place() -> None:
    findings = [
        Finding("error", "source b1", "log_bin is OFF", ""),
        Finding("error", "source b1, table bank.acct", "has no key", ""),
        Finding("error", "c.yaml:7: sources.b1", "does not answer", ""),
    ]
    assert [each.scope for each in of_source("b1", findings)] == [Scope.SOURCE, Scope.TABLE, Scope.SOURCE]


def test_what_nobody_looks_at_again_is_kept_from_starting() -> None:
    found = [
        error(Scope.SOURCE, "b1"),
        error(Scope.SOURCE, "b2"),
        error(Scope.PIPELINE, "p"),
        error(Scope.TARGET, "hq"),
        error(Scope.TABLE, "b2"),
        warning(Scope.SOURCE, "b2"),
        error(Scope.SOURCE, "b2"),
    ]
    assert not_started(found, debezium=["b2"]) == ["source/b2", "pipeline/p"]


def test_each_consequence_is_said_once() -> None:
    found = [
        error(Scope.SOURCE, "b1"),
        error(Scope.SOURCE, "b1"),
        error(Scope.TABLE, "hq", "target table public.a"),
    ]
    one, two = consequences([*found, warning(Scope.SOURCE, "b2"), error(Scope.EVERYTHING)])
    assert one.startswith("source b1 does not run")
    assert two.startswith("target table public.a is left out or stops")
