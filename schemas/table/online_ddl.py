"""The tables in which gh-ost and pt-online-schema-change build the next form of a table, recognised by
name. Pure.

Both copy a table `t` into a shadow (`_t_gho`, `_t_new`), keep that up to date, and swap the two by
RENAME; the former `t` is trash then (`_t_del`, `_t_old`). Templates describe the names: `{table}` is
the table's own name, `{time}` fourteen digits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from schemas.table.patterns import is_literal, is_pattern_match

TableName = tuple[str, str]

_LENGTH = 64  # characters of a table's name; gh-ost truncates the table's own part to that
_UNDERSCORES = 10  # pt-online-schema-change puts at most this many before a name, until it is free


@dataclass(frozen=True, slots=True)
class ToolNames:
    """Templates of the names of shadow tables, and of the tables that are left over.

    `triggered`: shadows that triggers keep up to date. Without triggers such a name proves nothing,
    because people use these names, too.
    """

    shadow: tuple[str, ...] = ()
    trash: tuple[str, ...] = ()
    triggered: tuple[str, ...] = ()

    def is_shadow(self, name: TableName, table: TableName) -> bool:
        """Return whether `name` is a shadow of `table`."""
        return name[0] == table[0] and any(_is_fitting_name(each, name[1], table[1]) for each in self.shadow)

    def is_trash(self, name: TableName, table: TableName) -> bool:
        """Return whether `name` is the name that the former `table` gets after the swap."""
        return name[0] == table[0] and any(_is_fitting_name(each, name[1], table[1]) for each in self.trash)

    def needs_triggers(self, name: TableName, table: TableName) -> bool:
        """Return whether `name`, a shadow of `table`, fits only tools that work by triggers."""
        fitting = [each for each in self.shadow if _is_fitting_name(each, name[1], table[1])]
        return all(each in self.triggered for each in fitting)

    def find_shadowed_table(self, name: TableName, tables: Collection[TableName]) -> TableName | None:
        """Return the table among `tables` that `name` is the shadow of; None: `name` is not a shadow."""
        return _find_owner(self.shadow, name, tables)

    def find_owner(self, name: TableName, tables: Collection[TableName]) -> TableName | None:
        """Return the table among `tables` that `name` is a shadow or trash of; None: it is an ordinary
        table.
        """
        return _find_owner(self.shadow, name, tables) or _find_owner(self.trash, name, tables)


NO_TOOLS = ToolNames()
#: Tool → the names of its tables.
TOOLS: Mapping[str, ToolNames] = {
    "gh-ost": ToolNames(("_{table}_gho",), ("_{table}_del", "_{table}_ghc", "_{table}_{time}_del")),
    "pt-osc": ToolNames(
        tuple(f"{'_' * each}{{table}}_new" for each in range(1, _UNDERSCORES + 1)),
        tuple(f"{'_' * each}{{table}}_old" for each in range(1, _UNDERSCORES + 1)),
        tuple(f"{'_' * each}{{table}}_new" for each in range(1, _UNDERSCORES + 1)),
    ),
}


def get_tool_names(tools: Iterable[str]) -> ToolNames:
    """Return the combined names of several of TOOLS."""
    chosen = [TOOLS[each] for each in tools]
    return ToolNames(
        tuple(name for each in chosen for name in each.shadow),
        tuple(name for each in chosen for name in each.trash),
        tuple(name for each in chosen for name in each.triggered),
    )


def refuse_template(template: str) -> str | None:
    """Return why a text is not a template of a table's name; None: it is one."""
    if template.count("{table}") != 1 or template == "{table}":
        return "it must hold {table} once, and something beside it"
    if "{" in template.replace("{table}", "").replace("{time}", ""):
        return "it holds a placeholder that is neither {table} nor {time}"
    return None


def find_tool_tables(
    names: Iterable[TableName], tools: ToolNames, patterns: Collection[str], tables: Collection[TableName]
) -> dict[TableName, TableName]:
    """Return which of `names` are shadow or trash tables, each with its table of `tables`.

    A table that a pattern names literally is not included.
    """
    literal = [each for each in patterns if not each.startswith("!") and is_literal(each)]
    found = {}
    for name in names:
        owner = tools.find_owner(name, tables)
        if owner is not None and not any(is_pattern_match(each, *name) for each in literal):
            found[name] = owner
    return found


@functools.lru_cache(maxsize=256)
def _compile_template(template: str) -> re.Pattern[str]:
    pattern = re.escape(template).replace(r"\{table\}", "(.+)").replace(r"\{time\}", r"\d{14}")
    return re.compile(pattern, re.DOTALL)


@functools.lru_cache(maxsize=4096)
def _own_parts(templates: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the parts of a name that may be another table's own name."""
    return tuple(found[1] for each in templates if (found := _compile_template(each).fullmatch(name)))


def _find_owner(
    templates: tuple[str, ...], name: TableName, tables: Collection[TableName]
) -> TableName | None:
    parts = _own_parts(templates, name[1])
    for part in parts:
        if (name[0], part) in tables:
            return (name[0], part)
    if not parts or len(name[1]) < _LENGTH:
        return None
    longer = (each for each in tables if each[0] == name[0] and each[1].startswith(parts))
    return next(
        (each for each in longer if any(_is_fitting_name(one, name[1], each[1]) for one in templates)), None
    )


def _is_fitting_name(template: str, name: str, table: str) -> bool:
    found = _compile_template(template).fullmatch(name)
    if found is None:
        return False
    return found[1] == table or (
        len(name) == _LENGTH and len(found[1]) < len(table) and table.startswith(found[1])
    )
