"""Random statements on one table at a source, also of several actions at once and with names that come back.
A statement that the server refuses did nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.kits.drawn_settings import drawn_settings

#: SQL type → (wider ones, types of other values, values).
TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "INT": (("BIGINT", "DECIMAL(12,2)"), ("VARCHAR(20)", "INT UNSIGNED"), ("0", "7", "-5")),
    "INT UNSIGNED": (("BIGINT", "DECIMAL(12,2)"), ("INT", "TINYINT"), ("0", "7", "4000000000")),
    "TINYINT": (("INT",), ("VARCHAR(20)",), ("1", "-128", "127")),
    "BIGINT": (("DECIMAL(20,0)",), ("INT", "VARCHAR(20)"), ("1", "99", "-3")),
    "DECIMAL(8,2)": (("DECIMAL(12,2)", "DECIMAL(12,4)"), ("DECIMAL(8,1)",), ("1.50", "-2.25", "0")),
    "VARCHAR(10)": (("VARCHAR(30)", "TEXT"), ("VARCHAR(6)", "CHAR(5)"), ("'a'", "'Zü'", "''", "'b c '")),
    "CHAR(5)": (("VARCHAR(10)",), ("VARCHAR(6)",), ("'c'", "' d'", "''")),
    "VARCHAR(20) CHARACTER SET latin1": (("VARCHAR(20)", "VARCHAR(40)"), (), ("'é'", "'x'")),
    "DATE": ((), ("DATETIME", "VARCHAR(20)"), ("'2026-02-28'", "'1999-12-31'")),
    "DATETIME": (("DATETIME(3)", "DATETIME(6)"), ("DATE",),
     ("'2026-01-02 03:04:05'", "'1999-12-31 23:59:59'")),
    "TIMESTAMP": (("TIMESTAMP(3)",), ("DATETIME",),
     ("'2026-01-02 03:04:05'", "'2025-10-26 00:30:00'", "'2025-10-26 01:30:00'")),
    "ENUM('a','b')": (("ENUM('a','b','c')",), ("ENUM('b','a')", "ENUM('B','A')", "VARCHAR(10)"),
     ("'a'", "'b'")),
    "SET('x','y')": (("SET('x','y','z')",), ("SET('y','x')",), ("'x'", "'x,y'", "''")),
    "VARBINARY(8)": (("VARBINARY(20)", "BLOB"), (), ("x'00ff'", "'b'")),
}  # fmt: skip
OTHERS: dict[str, tuple[str, ...]] = {
    "DECIMAL(12,2)": ("1.00",), "DECIMAL(20,0)": ("5",), "DECIMAL(12,4)": ("1.2500",),
    "DECIMAL(8,1)": ("1.5",), "VARCHAR(30)": ("'w'",), "TEXT": ("'text'",), "VARCHAR(6)": ("'n'",),
    "VARCHAR(20)": ("'v'", "'12'"), "VARCHAR(40)": ("'v4'",), "DATETIME(3)": ("'2026-01-02 03:04:05.678'",),
    "DATETIME(6)": ("'2026-01-02 03:04:05.678901'",), "ENUM('a','b','c')": ("'c'", "'a'"),
    "ENUM('b','a')": ("'b'",), "ENUM('B','A')": ("'B'",), "TIMESTAMP(3)": ("'2026-01-02 03:04:05.678'",),
    "SET('x','y','z')": ("'z'", "'x,z'"), "SET('y','x')": ("'x'",), "VARBINARY(20)": ("x'0102'",),
    "BLOB": ("'blob'",),
}  # fmt: skip
_NUMBERS = ("INT", "BIGINT", "TINYINT", "INT UNSIGNED")
_LONG = ("TEXT", "BLOB")
#: How often a statement runs in a session with settings of its own.
SET_APART = 0.25
HINTS = ("", "", "", "", ", ALGORITHM=COPY", ", ALGORITHM=INPLACE", ", ALGORITHM=INSTANT")
TABLE_ACTIONS = (
    "FORCE", "ENGINE=InnoDB", "COMMENT='c'", "CONVERT TO CHARACTER SET latin1",
    "CONVERT TO CHARACTER SET utf8mb4", "CONVERT TO CHARACTER SET utf8mb4", "DEFAULT CHARACTER SET latin1",
    "ORDER BY version, id", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, version)",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id)", "MODIFY id BIGINT NOT NULL", "MODIFY id INT NOT NULL",
    "MODIFY version BIGINT NOT NULL", "ADD INDEX (version)",
)  # fmt: skip


@dataclass
class Column:
    """`computed`: its expression is of the column's name in it; rows give no value."""

    type: str
    required: bool = False
    computed: str = ""
    invisible: bool = False


@dataclass(frozen=True)
class Action:
    """A part of ALTER TABLE: the column that it takes away, and the one that it gives."""

    text: str
    takes: str | None = None
    gives: tuple[str, Column] | None = None
    then: Callable[[], None] = lambda: None


@dataclass
class TableHistory:
    """Of one table. `statement` draws the next one; `done` is called when the server has accepted it. `left`:
    names that columns had once."""

    name: str
    rng: random.Random
    columns: dict[str, Column] = field(
        default_factory=lambda: {"v": Column("VARCHAR(10)"), "n": Column("INT")}
    )
    made: int = 0
    version: int = 0
    _then: Callable[[], None] = lambda: None
    indexes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def statement(self, ddl: float) -> str:
        self._then = lambda: None
        return self._change() if self.rng.random() < ddl else self._rows()

    def session(self) -> tuple[str, ...]:
        """Draw the settings of the session that the statement runs in; mostly those that every session begins
        with."""
        return drawn_settings(self.rng) if self.rng.random() < SET_APART else ()

    def done(self) -> None:
        self._then()

    # --- rows

    def _value(self, column: Column) -> str:
        known = TYPES[column.type][2] if column.type in TYPES else OTHERS[column.type]
        return "NULL" if not column.required and self.rng.random() < 0.3 else self.rng.choice(known)

    @property
    def _given(self) -> dict[str, Column]:
        return {name: each for name, each in self.columns.items() if not each.computed}

    def _rows(self) -> str:
        self.version += 1
        key, luck, given = self.rng.randint(1, 9), self.rng.random(), self._given
        if luck < 0.12:
            return f"DELETE FROM {self.name} WHERE id = {key}"
        if luck < 0.14:
            return f"TRUNCATE TABLE {self.name}"
        if luck < 0.2:
            return (
                f"UPDATE {self.name} SET id = {self.rng.randint(1, 9)}, version = "
                f"{self.version} WHERE id = {key}"
            )
        if luck < 0.23:
            return (
                f"UPDATE {self.name} SET id = id + 1, version = {self.version} WHERE id >= "
                f"{key} AND id < 9 ORDER BY id DESC"
            )
        if luck < 0.5 and given:
            column = self.rng.choice(sorted(given))
            value = self._value(given[column])
            where = f"id >= {key}" if luck < 0.26 else f"id = {key}"
            return f"UPDATE {self.name} SET {column} = {value}, version = {self.version} WHERE {where}"
        names = ["id", "version", *given]
        values = [str(key), str(self.version), *(self._value(each) for each in given.values())]
        into = f"INTO {self.name} ({', '.join(names)}) VALUES ({', '.join(values)})"
        if luck < 0.6:
            return f"REPLACE {into}"
        sets = ", ".join(f"{name} = VALUES({name})" for name in names[1:])
        return f"INSERT {into} ON DUPLICATE KEY UPDATE {sets}"

    # --- the table

    def _change(self) -> str:
        if self.rng.random() < 0.15:
            return f"ALTER TABLE {self.name} {self.rng.choice(TABLE_ACTIONS)}{self.rng.choice(HINTS)}"
        kinds = [
            self._add, self._add, self._drop, self._rename, self._rename, self._widen, self._widen,
            self._lose, self._again, self._index, self._order, self._null, self._default, self._change_all,
            self._compute, self._hide,
        ]  # fmt: skip
        expected = self.rng.choice([1, 1, 1, 2, 2, 3])
        found: list[Action] = []
        while len(found) < expected:
            made = self.rng.choice(kinds)()
            if made is not None:
                found.append(made)
        self.rng.shuffle(found)
        self._then = lambda: self._done(found)
        return f"ALTER TABLE {self.name} {', '.join(each.text for each in found)}{self.rng.choice(HINTS)}"

    def _done(self, actions: list[Action]) -> None:
        for each in actions:
            if each.takes is not None:
                self.columns.pop(each.takes, None)  # a server may take two actions on one column
                self.left.append(each.takes)
        for each in actions:
            if each.gives is not None:
                self.columns[each.gives[0]] = each.gives[1]
            each.then()

    def _some(self) -> str | None:
        return self.rng.choice(sorted(self.columns)) if self.columns else None

    def _name(self) -> str:
        """A new name, one that a column had once, or one that a column has (another action may take it away);
        some of them in the other case."""
        luck, other = self.rng.random(), self.rng.random() < 0.25
        self.made += 1
        name = f"c{self.made}"
        if luck < 0.3 and self.left:
            name = self.rng.choice(sorted(set(self.left)))
        elif luck < 0.45 and self.columns:
            name = self.rng.choice(sorted(self.columns))
        return name.swapcase() if other else name

    def _add(self) -> Action:
        name, type_ = self._name(), self.rng.choice(sorted(TYPES))
        value = self.rng.choice(TYPES[type_][2])
        more = self.rng.choice(["", "", f" DEFAULT {value}", f" NOT NULL DEFAULT {value}", " NOT NULL"])
        if type_ in ("DATETIME", "TIMESTAMP") and more == " NOT NULL":
            more = " DEFAULT CURRENT_TIMESTAMP"
        null = " NULL" if type_ == "TIMESTAMP" and "NOT NULL" not in more else ""
        hidden = self.rng.random() < 0.1 and more != " NOT NULL"
        text = (
            f"ADD COLUMN {name} "
            f"{type_}{null}{more}{' INVISIBLE' * hidden}{self.rng.choice(['', ' FIRST', ' AFTER id'])}"
        )
        return Action(text, gives=(name, Column(type_, "NOT NULL" in more, invisible=hidden)))

    def _drop(self) -> Action | None:
        name = self._some()
        return None if name is None or len(self.columns) < 2 else Action(f"DROP COLUMN {name}", name)

    def _again(self) -> Action | None:
        name = self._some()
        if name is None or self.columns[name].computed:
            return None
        column = self.columns[name]
        return Action(
            f"DROP COLUMN {name}, ADD COLUMN {name} {column.type} NULL", name, (name, Column(column.type))
        )

    def _rename(self) -> Action | None:
        name, new = self._some(), self._name()
        if name is None or name == new:
            return None
        return Action(f"RENAME COLUMN {name} TO {new}", name, (new, replace(self.columns[name])))

    def _modify(self, name: str, type_: str, required: bool, new: str | None = None) -> Action | None:
        if self.columns[name].computed:
            return None
        new = new or name
        what = f"MODIFY {name}" if new == name else f"CHANGE {name} {new}"
        text = f"{what} {type_}{' NOT NULL' if required else ' NULL'}"
        return Action(text, name, (new, Column(type_, required)))

    def _widen(self) -> Action | None:
        return self._retyped(0)

    def _lose(self) -> Action | None:
        return self._retyped(1)

    def _retyped(self, which: int) -> Action | None:
        name = self._some()
        types = TYPES.get(self.columns[name].type, ((), (), ()))[which] if name else ()
        return (
            self._modify(name, self.rng.choice(types), self.columns[name].required)
            if name and types
            else None
        )

    def _null(self) -> Action | None:
        name = self._some()
        return (
            None
            if name is None
            else self._modify(name, self.columns[name].type, not self.columns[name].required)
        )

    def _change_all(self) -> Action | None:
        """Another name, and perhaps another type."""
        name = self._some()
        if name is None:
            return None
        column = self.columns[name]
        types = [column.type, *TYPES.get(column.type, ((), (), ()))[0]]
        return self._modify(name, self.rng.choice(types), column.required, self._name())

    def _order(self) -> Action | None:
        name = self._some()
        made = (
            None if name is None else self._modify(name, self.columns[name].type, self.columns[name].required)
        )
        return None if made is None else replace(made, text=f"{made.text} FIRST")

    def _default(self) -> Action | None:
        name = self._some()
        if name is None or self.columns[name].computed or self.columns[name].type in _LONG:
            return None
        column = self.columns[name]
        value = self._value(replace(column, required=True))
        what = self.rng.choice(["DROP DEFAULT", f"SET DEFAULT {value}"])
        return Action(f"ALTER COLUMN {name} {what}")

    def _compute(self) -> Action | None:
        numbers = [name for name, each in self.columns.items() if each.type in _NUMBERS and not each.computed]
        if not numbers:
            return None
        of, name = self.rng.choice(sorted(numbers)), self._name()
        expression, how = f"{of} + {self.rng.randint(1, 3)}", self.rng.choice(["STORED", "VIRTUAL"])
        text = f"ADD COLUMN {name} BIGINT AS ({expression}) {how}"
        return Action(text, gives=(name, Column("BIGINT", computed=expression)))

    def _hide(self) -> Action | None:
        name = self._some()
        made = (
            None if name is None else self._modify(name, self.columns[name].type, self.columns[name].required)
        )
        if made is None or made.gives is None or made.gives[1].required:
            return None
        return replace(
            made, text=f"{made.text} INVISIBLE", gives=(made.gives[0], replace(made.gives[1], invisible=True))
        )

    def _index(self) -> Action | None:
        if self.indexes and self.rng.random() < 0.5:
            missing = self.rng.choice(self.indexes)
            return Action(f"DROP INDEX {missing}", then=lambda: self.indexes.remove(missing))
        name = self._some()
        if name is None or self.columns[name].type in _LONG:
            return None
        self.made += 1
        index, also = f"u{self.made}", self.rng.choice([", version", ", version", ""])
        return Action(f"ADD UNIQUE {index} ({name}{also})", then=lambda: self.indexes.append(index))
