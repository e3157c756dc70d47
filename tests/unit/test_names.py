"""Names compare as the server compares them: 0 exactly, 1 and 2 without regard to case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.io.mysql_catalog import is_selected
from schemas.table.names import EXACT, NameRules


@pytest.mark.parametrize(
    ("setting", "folds"), [("0", False), ("", False), (None, False), ("1", True), ("2", True)]
)
def test_which_settings_fold(setting: str | None, folds: bool) -> None:
    names = NameRules.from_setting(setting)
    assert (names.normalize_table(("Bank", "ACCT")) == names.normalize_table(("bank", "acct"))) is folds


def test_patterns_take_names_in_any_case_only_where_the_server_does() -> None:
    for setting in ("1", "2"):
        names = NameRules.from_setting(setting)
        patterns = names.fold_patterns(["Bank.*", "!BANK.Tmp_*"])
        assert is_selected(patterns, *names.normalize_table(("BANK", "Acct")))
        assert not is_selected(patterns, *names.normalize_table(("bank", "tmp_1")))
    assert not is_selected(EXACT.fold_patterns(["Bank.*"]), "bank", "acct")


@given(st.text(max_size=20))
def test_folding_keeps_the_length_and_is_done_once(text: str) -> None:
    names = NameRules(folds=True)
    assert len(names.fold_name(text)) == len(text)
    assert names.fold_name(names.fold_name(text)) == names.fold_name(text)
    assert EXACT.fold_name(text) == text
