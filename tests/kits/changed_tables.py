"""Random histories of a table at a source: changes of rows and of the table itself, as SQL. A statement that
the server refuses did nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

#: SQL type → (wider ones, types of other values, values).
TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "INT": (("BIGINT", "DECIMAL(12,2)"), ("VARCHAR(20)",), ("0", "7", "-5")),
    "BIGINT": (("DECIMAL(20,0)",), ("INT", "VARCHAR(20)"), ("1", "99", "-3")),
    "DECIMAL(8,2)": (("DECIMAL(12,2)", "DECIMAL(12,4)"), ("DECIMAL(8,1)",), ("1.50", "-2.25", "0")),
    "VARCHAR(10)": (("VARCHAR(30)", "TEXT"), ("VARCHAR(6)",), ("'a'", "'Zü'", "''", "'b c'")),
    "VARCHAR(20) CHARACTER SET latin1": (("VARCHAR(20)", "VARCHAR(40)"), (), ("'é'", "'x'")),
    "DATETIME": (("DATETIME(3)", "DATETIME(6)"), (), ("'2026-01-02 03:04:05'", "'1999-12-31 23:59:59'")),
    "ENUM('a','b')": (("ENUM('a','b','c')",), ("ENUM('b','a')",), ("'a'", "'b'")),
}
OTHERS: dict[str, tuple[str, ...]] = {
    "DECIMAL(12,2)": ("1.00",), "DECIMAL(20,0)": ("5",), "DECIMAL(12,4)": ("1.2500",),
    "DECIMAL(8,1)": ("1.5",), "VARCHAR(30)": ("'w'",), "TEXT": ("'text'",), "VARCHAR(6)": ("'n'",),
    "VARCHAR(20)": ("'v'", "'12'"), "VARCHAR(40)": ("'v4'",), "DATETIME(3)": ("'2026-01-02 03:04:05.678'",),
    "DATETIME(6)": ("'2026-01-02 03:04:05.678901'",), "ENUM('a','b','c')": ("'c'", "'a'"),
    "ENUM('b','a')": ("'b'",),
}  # fmt: skip


@dataclass
class Column:
    type: str
    required: bool = False


@dataclass
class OneActionHistory:
    """Of one table, one action in each ALTER TABLE. `statement` draws the next one; `done` is called when the
    server has accepted it."""

    name: str
    rng: random.Random
    columns: dict[str, Column] = field(
        default_factory=lambda: {"v": Column("VARCHAR(10)"), "n": Column("INT")}
    )
    made: int = 0
    version: int = 0
    _then: Callable[[], None] = lambda: None
    indexes: list[str] = field(default_factory=list)

    def statement(self, ddl: float) -> str:
        self._then = lambda: None
        return self._change() if self.rng.random() < ddl else self._rows()

    def done(self) -> None:
        self._then()

    # --- rows

    def _value(self, column: Column) -> str:
        known = TYPES[column.type][2] if column.type in TYPES else OTHERS[column.type]
        return "NULL" if not column.required and self.rng.random() < 0.3 else self.rng.choice(known)

    def _rows(self) -> str:
        self.version += 1
        key, luck = self.rng.randint(1, 9), self.rng.random()
        if luck < 0.15:
            return f"DELETE FROM {self.name} WHERE id = {key}"
        if luck < 0.17:
            return f"TRUNCATE TABLE {self.name}"
        if luck < 0.5 and self.columns:
            column = self.rng.choice(sorted(self.columns))
            value = self._value(self.columns[column])
            return f"UPDATE {self.name} SET {column} = {value}, version = {self.version} WHERE id = {key}"
        names = ["id", "version", *self.columns]
        values = [str(key), str(self.version), *(self._value(each) for each in self.columns.values())]
        sets = ", ".join(f"{name} = VALUES({name})" for name in names[1:])
        return (
            f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({', '.join(values)}) ON "
            f"DUPLICATE KEY UPDATE {sets}"
        )

    # --- the table

    def _change(self) -> str:
        kinds = [
            self._add,
            self._add,
            self._drop,
            self._rename,
            self._widen,
            self._widen,
            self._lose,
            self._again,
            self._index,
            self._order,
            self._null,
        ]
        while True:
            made = self.rng.choice(kinds)()
            if made is not None:
                return f"ALTER TABLE {self.name} {made}"

    def _some(self) -> str | None:
        return self.rng.choice(sorted(self.columns)) if self.columns else None

    def _add(self) -> str:
        self.made += 1
        name, type_ = f"c{self.made}", self.rng.choice(sorted(TYPES))
        value = self.rng.choice(TYPES[type_][2])
        more = self.rng.choice(["", "", f" DEFAULT {value}", f" NOT NULL DEFAULT {value}", " NOT NULL"])
        if type_ == "DATETIME" and more == " NOT NULL":
            more = " DEFAULT CURRENT_TIMESTAMP"
        self._then = lambda: self.columns.update({name: Column(type_, "NOT NULL" in more)})
        return f"ADD COLUMN {name} {type_}{more}{self.rng.choice(['', ' FIRST', ' AFTER id'])}"

    def _drop(self) -> str | None:
        name = self._some()
        if name is None or len(self.columns) < 2:
            return None
        self._then = lambda: (self.columns.pop(name), None)[1]
        return f"DROP COLUMN {name}"

    def _again(self) -> str | None:
        name = self._some()
        if name is None:
            return None
        column = self.columns[name]
        self._then = lambda: self.columns.update({name: Column(column.type)})
        return f"DROP COLUMN {name}, ADD COLUMN {name} {column.type}"

    def _rename(self) -> str | None:
        name = self._some()
        if name is None:
            return None
        self.made += 1
        new = f"r{self.made}"
        self._then = lambda: self.columns.update({new: self.columns.pop(name)})
        return f"RENAME COLUMN {name} TO {new}"

    def _modify(self, name: str, type_: str, required: bool) -> str:
        self._then = lambda: self.columns.update({name: Column(type_, required)})
        return f"MODIFY {name} {type_}{' NOT NULL' if required else ''}"

    def _widen(self) -> str | None:
        name = self._some()
        wider = TYPES.get(self.columns[name].type, ((), (), ()))[0] if name else ()
        return (
            self._modify(name, self.rng.choice(wider), self.columns[name].required)
            if name and wider
            else None
        )

    def _lose(self) -> str | None:
        name = self._some()
        other = TYPES.get(self.columns[name].type, ((), (), ()))[1] if name else ()
        return (
            self._modify(name, self.rng.choice(other), self.columns[name].required)
            if name and other
            else None
        )

    def _null(self) -> str | None:
        name = self._some()
        return (
            None
            if name is None
            else self._modify(name, self.columns[name].type, not self.columns[name].required)
        )

    def _order(self) -> str | None:
        name = self._some()
        return (
            None
            if name is None
            else f"{self._modify(name, self.columns[name].type, self.columns[name].required)} FIRST"
        )

    def _index(self) -> str | None:
        if self.indexes and self.rng.random() < 0.6:
            missing = self.rng.choice(self.indexes)
            self._then = lambda: self.indexes.remove(missing)
            return f"DROP INDEX {missing}"
        name = self._some()
        if name is None or self.columns[name].type == "TEXT":
            return None
        self.made += 1
        index = f"u{self.made}"
        self._then = lambda: self.indexes.append(index)
        return f"ADD UNIQUE {index} ({name}, version)"
