"""The layout of the repository: its files, the Makefile's targets, and which package may import which."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Package → the packages of this repository that it may import. rowlock/ puts them together.
MAY_IMPORT = {
    "schemas": set[str](),
    "producer": {"schemas"},
    "consumer": {"schemas"},
    "coordinator": {"schemas"},
    "deploy": {"schemas"},
    "rowlock": {"schemas", "producer", "consumer", "coordinator", "deploy"},
}
FILES = (
    "setup.cfg", "pyproject.toml", "ruff.toml", "Makefile", "LICENSE", "README.md", "CHANGELOG.md",
    "SECURITY.md", "CONTRIBUTING.md", ".ci/run", "docs/adr", "docs/benchmarks.md",
    "deploy/config.example.yaml", "deploy/embedded",
)  # fmt: skip
TARGETS = {"help", "demo", "test", "test-slow", "test-sim", "test-mutants", "lint", "docs", "bench", "clean"}


@pytest.mark.parametrize("name", [*FILES, *(f"{package}/__init__.py" for package in MAY_IMPORT)])
def test_what_a_newcomer_looks_for_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_checks_can_be_started_and_the_licence_is_the_named_one() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "license = Apache-2.0" in (ROOT / "setup.cfg").read_text()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_each_file_of_the_repository_is_text() -> None:
    """A wheel of a tool was committed by mistake once."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
    assert len(names) > 1000
    for name in names:
        (ROOT / name).read_text(encoding="utf-8")


def test_make_help_names_every_target_that_there_is() -> None:
    reported = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = {line.split()[1] for line in reported.splitlines() if line.startswith("  make ")}
    assert shown >= TARGETS
    for target in TARGETS:  # a dry run: does make know how?
        subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=True)


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield node.module or ""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    ours = {*MAY_IMPORT, "tests"} - MAY_IMPORT[package] - {package}
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in imported(file)
        if name.split(".")[0] in ours
    ]
    assert wrong == []


#: Modules that need each other to be imported. The list may only shrink.
CIRCLES = [{"schemas.config.model", "schemas.config.load"}]


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or not."""
    found: list[set[str]] = []
    for module in sorted(graph.modules):
        around = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if around and around | {module} not in found:
            found.append(around | {module})
    return found


def test_modules_do_not_import_in_circles() -> None:
    """Imports inside of functions count: they hide a circle, and do not undo it."""
    ours = grimp.build_graph(*MAY_IMPORT, exclude_type_checking_imports=True, cache_dir=None)
    assert circles(ours) == CIRCLES


def test_capture_asks_its_flavour_and_not_for_a_servers_make() -> None:
    """What MySQL and MariaDB do each in its own way is in producer/sources/mysql and mariadb; the kinds of
    log events are data of the log."""
    wrong = []
    for file in sorted((ROOT / "producer").rglob("*.py")):
        if file.parent.name in ("mysql", "mariadb"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            asked = (
                [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                if isinstance(node, ast.Compare)
                else []
            )
            named = isinstance(node, ast.arg) and node.arg == "mariadb"
            if named or {"mysql", "mariadb"} & {each for each in asked if isinstance(each, str)}:
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_the_page_says_what_is_in_each_folder() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    shown = dict(
        re.findall(
            r"^\| `([a-z_/]+)/` \| (.*) \|$", page.split("## Folders")[1].split("\n## ")[0], re.MULTILINE
        )
    )
    folders = {
        file.parent.relative_to(ROOT).as_posix(): " ".join(
            (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0].split()
        )
        for package in MAY_IMPORT
        for file in (ROOT / package).rglob("__init__.py")
        if file.parent != ROOT / package
    }
    assert shown == folders


def test_each_folder_describes_itself_instead_of_naming_the_page_that_lists_it() -> None:
    described = {
        file.parent.relative_to(ROOT).as_posix(): ast.get_docstring(ast.parse(file.read_text())) or ""
        for package in MAY_IMPORT
        for file in (ROOT / package).rglob("__init__.py")
    }
    assert [folder for folder, text in described.items() if not text or "architecture.md" in text] == []
