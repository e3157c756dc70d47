"""The registry of stored and transmitted formats is complete: types, modules, and the page that describes
them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from tests.formats import REGISTERED, STRUCTURES
from tests.formats.modules import EXEMPT, MODULES, VIEWS
from tests.formats.samples import structures_in
from tests.formats.structure import ROOT

PACKAGES = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy")
VIEWED = {kind for view in VIEWS for kind in structures_in(view.type)}
NAMES = {structure.name for structure in STRUCTURES}


def product_types() -> set[type]:
    """Return every msgspec structure and pydantic model of the product."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith(
                ("__main__", "consumer.spark.daemon")
            ):  # those do their work when imported
                importlib.import_module(found.name)
    return {
        kind
        for base in (msgspec.Struct, BaseModel)
        for kind in _subclasses(base)
        if kind.__module__.partition(".")[0] in PACKAGES and kind.__module__ != kind.__qualname__
    }


def _subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def is_exempt(kind: type) -> bool:
    name = name_of(kind)
    return any(name == each or name.startswith((f"{each}.", f"{each}:")) for each in EXEMPT)


def test_every_type_is_registered_or_exempt_with_a_reason() -> None:
    missing = [
        name_of(kind)
        for kind in product_types()
        if kind not in REGISTERED and kind not in VIEWED and not is_exempt(kind) and _is_named(kind)
    ]
    assert sorted(missing) == []


def _is_named(kind: type) -> bool:
    """Return whether a class statement made the type: those that `defstruct` makes have the columns of a
    table, or names in quotes."""
    return "[" not in kind.__qualname__ and hasattr(
        importlib.import_module(kind.__module__), kind.__qualname__
    )


def test_no_registered_type_is_exempt() -> None:
    assert sorted(name_of(kind) for kind in REGISTERED | VIEWED if is_exempt(kind)) == []


def test_every_exemption_names_a_type() -> None:
    names = {name_of(kind) for kind in product_types()}
    assert [
        each
        for each in EXEMPT
        if not any(name == each or name.startswith((f"{each}.", f"{each}:")) for name in names)
    ] == []


def unnamed(kind: type) -> list[str]:
    """Return the fields of a class statement that have no name of their own on the wire."""
    tree = ast.parse(Path(sys.modules[kind.__module__].__file__ or "").read_text())
    (body,) = (
        each.body for each in tree.body if isinstance(each, ast.ClassDef) and each.name == kind.__qualname__
    )
    return [
        f"{name_of(kind)}.{ast.unparse(each.target)}"
        for each in body
        if isinstance(each, ast.AnnAssign) and not _has_name(each.value)
    ]


def _has_name(value: ast.expr | None) -> bool:
    """Return whether a field is written as `msgspec.field(name="…")`, or `Field(alias="…")` of a pydantic
    model."""
    if not isinstance(value, ast.Call):
        return False
    words = {"msgspec.field": {"name"}, "Field": {"alias", "serialization_alias"}}[ast.unparse(value.func)]
    return any(
        each.arg in words and isinstance(each.value, ast.Constant) and each.value.value
        for each in value.keywords
    )


@pytest.mark.parametrize("kind", sorted(REGISTERED | VIEWED, key=name_of), ids=name_of)
def test_every_field_names_its_member(kind: type) -> None:
    """So that another name of the field cannot change the format."""
    assert issubclass(kind, msgspec.Struct | BaseModel), "msgspec takes a dataclass's members from its fields"
    bases = (each for each in kind.__mro__ if each.__module__.partition(".")[0] in PACKAGES)
    assert [field for each in bases for field in unnamed(each)] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('x: int = msgspec.field(name="x")', True),
        ('x: int = Field(serialization_alias="x", ge=0)', True),
        ("x: int", False),
        ("x: int = 0", False),
        ("x: int = msgspec.field(default=0)", False),
        ("x: int = Field(default=0)", False),
    ],
)
def test_a_field_without_a_name_is_found(line: str, expected: bool) -> None:
    (statement,) = ast.parse(line).body
    assert isinstance(statement, ast.AnnAssign)
    assert _has_name(statement.value) is expected


CODECS = re.compile(
    r"^(json|orjson|pickle)\.\w+$|^msgspec\.(json|msgpack)\.\w+$|^msgspec\.(convert|to_builtins)$|^asdict$"
)
METHODS = re.compile(r"\.(model_dump|model_dump_json|model_validate|model_validate_json|json)$")


def encodes(path: Path) -> bool:
    """Return whether a module turns values into JSON or msgpack, or back."""
    names = (
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
    )
    return any(
        CODECS.match(name) or (METHODS.search(name) and not name.startswith("msgspec")) for name in names
    )


def test_every_module_that_encodes_names_its_structures() -> None:
    modules = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)) for path in modules if encodes(path)}
    assert found == set(MODULES)


def test_every_structure_is_encoded_in_a_module() -> None:
    named = {name for text in MODULES.values() for name in text.split(", ")}
    by_statements = {
        "words",
        "bookkeeping-tables",
        "rowlock_unit",
        "rowlock_quarantine_closed",
        "rowlock_kept",
    }
    assert NAMES - named == by_statements


PAGE = (ROOT / "docs" / "reference" / "stored-formats.md").read_text()


def test_the_page_lists_the_structures_of_the_registry() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| `([^`]+)` \|$", PAGE, re.MULTILINE)
    expected = {name: f"tests/golden/stored/{name}/" for name in NAMES} | {"grpc": "tests/golden/wire/"}
    assert dict(rows) == expected
    assert len(rows) == len(expected)
