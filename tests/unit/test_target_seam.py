"""Only the files of a dialect know it: nothing else asks which database it has before it, nor writes SQL that
one of them takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.config.kinds.targets import TARGET_KINDS

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "consumer" / "targets"
#: "mysql" of consumer.targets.mysql.dialect, or of consumer.targets.mysql_dialect: files or a folder of that
#: name are the dialect's own.
FAMILIES = {
    re.split(r"[._]", kind.module.removeprefix("consumer.targets."))[0] for kind in TARGET_KINDS.values()
}
#: What a dialect may use to make its `Syntax`, and nobody else.
COMMON = TARGETS / "shared" / "common_syntax.py"
#: Modules of apply that are about *sources*, or about data of named servers, and why each may name one.
NAMING = {
    "collation_data.py": "what servers' collations hold equal, by their names",
    "collations.py": "the same, by families of names",
    "discovery.py": "selects tables of the source, as capture does",
    "source_tables.py": "reads a definition from the source",
}
NAMES = re.compile(r"mysql|mariadb|postgres|psycopg|\bpg_|innodb|tdsql|sqlite|oracle", re.IGNORECASE)
#: SQL that only some databases take, or that does not mean the same in all of them.
BOUND = re.compile(
    r"\bLIMIT\b|\bFETCH FIRST\b|\bFOR UPDATE\b|\bCURRENT_TIMESTAMP\b|\bNOW\(|IF NOT EXISTS \S|\bON CONFLICT\b|\bON DUPLICATE\b|\bRETURNING\b"  # noqa: E501
    r"|\bSET (GLOBAL|SESSION|LOCAL)\b|\bENGINE\b|\bALTER (TABLE|ROLE)\b|\w::\w|\bBEGIN\b|\bROWNUM\b"
)


def is_dialects_own(path: Path) -> bool:
    place = path.relative_to(TARGETS).parts if path.is_relative_to(TARGETS) else ("",)
    return any(place[0] == family or place[0].startswith(f"{family}_") for family in FAMILIES)


def neutral(package: str) -> list[Path]:
    return [path for path in (ROOT / package).rglob("*.py") if not is_dialects_own(path)]


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of all constants that are only there to be read: strings that are statements."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    read_only = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in read_only:
            yield node.lineno, node.value


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name


def found(paths: list[Path], pattern: re.Pattern[str], *, code: bool) -> list[str]:
    out = []
    for path in paths:
        tree = ast.parse(path.read_text())
        seen = [*texts(tree), *(names(tree) if code else ())]
        out += [f"{path.relative_to(ROOT)}:{line}: {text!r}" for line, text in seen if pattern.search(text)]
    return out


def test_there_are_families_and_files_of_theirs() -> None:
    assert {"mysql", "postgres"} <= FAMILIES
    assert len([path for path in TARGETS.rglob("*.py") if is_dialects_own(path)]) >= 2 * 9


def test_no_neutral_module_of_apply_names_a_database() -> None:
    paths = [path for path in neutral("consumer") if path.name not in NAMING]
    assert found(paths, NAMES, code=True) == []


@pytest.mark.parametrize("name", NAMING)
def test_a_module_that_may_name_one_does(name: str) -> None:
    """Else the exception has had its day."""
    assert found([*(ROOT / "consumer").rglob(name)], NAMES, code=True)


@pytest.mark.parametrize("package", ["consumer", "rowlock"])
def test_nobody_asks_which_target_it_is(package: str) -> None:
    asked = []
    for path in neutral(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.Match) and "target" in (text := ast.unparse(node)).lower():
                constants = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                asked += [f"{path.relative_to(ROOT)}: {text}"] if constants & set(TARGET_KINDS) else []
    assert asked == []


def test_no_neutral_module_writes_sql_of_its_own_dialect() -> None:
    paths = [path for path in neutral("consumer") if path != COMMON]
    assert found(paths, BOUND, code=False) == []


def test_only_dialects_import_what_is_theirs() -> None:
    own = [path for path in (*TARGETS.rglob("*.py"), COMMON) if is_dialects_own(path) or path == COMMON]
    theirs = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in own}
    wrong = []
    for package in ("consumer", "rowlock", "coordinator", "producer"):
        for path in neutral(package):
            imported = {name for _, name in names(ast.parse(path.read_text()))}
            wrong += [f"{path.relative_to(ROOT)}: {name}" for name in imported & theirs]
    assert wrong == []
