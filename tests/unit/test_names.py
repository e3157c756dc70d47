"""Names compare as the server compares them: 0 exactly, 1 and 2 without regard to case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.io.mysql_catalog import is_selected
from schemas.table.names import EXACT, Names


@pytest.mark.parametrize(
    ("setting", "folds"), [("0", False), ("", False), (None, False), ("1", True), ("2", True)]
)
def test_which_settings_fold(setting: str | None, folds: bool) -> None:
    names = Names.of(setting)
    assert (names.same(("Bank", "ACCT")) == names.same(("bank", "acct"))) is folds


def test_patterns_take_names_in_any_case_only_where_the_server_does() -> None:
    for setting in ("1", "2"):
        names = Names.of(setting)
        patterns = names.patterns(["Bank.*", "!BANK.Tmp_*"])
        assert is_selected(patterns, *names.same(("BANK", "Acct")))
        assert not is_selected(patterns, *names.same(("bank", "tmp_1")))
    assert not is_selected(EXACT.patterns(["Bank.*"]), "bank", "acct")


@given(st.text(max_size=20))
def test_folding_keeps_the_length_and_is_done_once(text: str) -> None:
    names = Names(folds=True)
    assert len(names.fold(text)) == len(text)
    assert names.fold(names.fold(text)) == names.fold(text)
    assert EXACT.fold(text) == text
