"""The names of tables of gh-ost and pt-online-schema-change, in general and in the configuration."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.config.online_ddl import OnlineDdlConfig, enable_all_tools
from schemas.table.online_ddl import NO_TOOLS, ToolNames, find_tool_tables, get_tool_names

BOTH = enable_all_tools().names
T = ("bank", "t")
LONG = "x" * 62


@pytest.mark.parametrize(
    ("name", "shadow", "trash"),
    [
        ("_t_gho", True, False),
        ("_t_new", True, False),
        ("___t_new", True, False),
        ("_t_del", False, True),
        ("_t_ghc", False, True),
        ("_t_20260101123059_del", False, True),
        ("_t_2026_del", False, False),
        ("_t_old", False, True),
        ("__t_old", False, True),
        ("t_new", False, False),
        ("_t_gho2", False, False),
        ("_tt_gho", False, False),
        ("t", False, False),
    ],
)
def test_what_a_name_is(name: str, shadow: bool, trash: bool) -> None:
    assert (BOTH.is_shadow(("bank", name), T), BOTH.is_trash(("bank", name), T)) == (shadow, trash)
    assert BOTH.find_owner(("bank", name), {T}) == (T if shadow or trash else None)
    assert BOTH.find_shadowed_table(("bank", name), {T, ("bank", "other")}) == (T if shadow else None)
    assert not BOTH.is_shadow(("other", name), T)
    assert BOTH.find_owner(("other", name), {T}) is None


def test_one_tool_alone_or_none() -> None:
    only = get_tool_names(["pt-osc"])
    assert only.is_shadow(("bank", "_t_new"), T)
    assert not only.is_shadow(("bank", "_t_gho"), T)
    assert not NO_TOOLS.is_shadow(("bank", "_t_gho"), T)


def test_only_pt_osc_needs_triggers() -> None:
    assert BOTH.needs_triggers(("bank", "_t_new"), T)
    assert not BOTH.needs_triggers(("bank", "_t_gho"), T)


def test_a_long_name_is_cut_off_by_the_tool() -> None:
    table = ("bank", LONG)
    cut = ("bank", f"_{LONG[:59]}_gho")
    assert len(cut[1]) == 64
    assert BOTH.is_shadow(cut, table)
    assert BOTH.find_owner(cut, {T, table}) == table
    shorter = ("bank", f"_{LONG[:58]}_gho")
    assert not BOTH.is_shadow(shorter, table)
    assert BOTH.find_owner(shorter, {table}) is None


def test_a_tools_table_is_one_of_a_table_that_is_there_and_not_named_as_it_is() -> None:
    names = [T, ("bank", "_t_new"), ("bank", "_u_new"), ("bank", "_t_del")]
    assert find_tool_tables(names, BOTH, ["bank.*"], set(names)) == {names[1]: T, names[3]: T}
    assert find_tool_tables(names, BOTH, ["bank.*", "bank._t_new", "!bank._t_del"], set(names)) == {
        names[3]: T
    }
    assert find_tool_tables(names, BOTH, ["bank.*"], set(names) - {T}) == {}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["gh-ost", "pt-osc"], BOTH),
        ("gh-ost", get_tool_names(["gh-ost"])),
        ([], NO_TOOLS),
        (
            {"shadow": ["{table}__next"], "trash": ["{table}_{time}"]},
            ToolNames(("{table}__next",), ("{table}_{time}",)),
        ),
    ],
)
def test_the_configuration(given: object, names: ToolNames) -> None:
    assert OnlineDdlConfig.model_validate(given).names == names


@pytest.mark.parametrize(
    "given", [["ghost"], 7, {"shadow": ["_new"]}, {"shadow": ["{table}"]}, {"trash": ["{table}_{x}"]}, {"shadow": ["{table}{table}_"]}]  # noqa: E501
)  # fmt: skip
def test_what_the_configuration_refuses(given: object) -> None:
    with pytest.raises(ValidationError):
        OnlineDdlConfig.model_validate(given)
