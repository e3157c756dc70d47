"""Bytes that are stored or transmitted: golden files hold them, of this version and of all before
(docs/reference/stored-formats.md)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.formats import REGISTERED, STRUCTURES
from tests.formats.modules import VIEWS
from tests.formats.samples import defaults_in, fields, structures_in
from tests.formats.structure import FOLDER, ROOT, Case, Structure, View, documents, golden, members

PACKAGES = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy")
CASES = [(structure, case) for structure in STRUCTURES for case in structure.cases]
OLDER = [(*pair, path) for pair in CASES for path in pair[0].files(pair[1])[:-1]]
VIEWED = {kind for view in VIEWS for kind in structures_in(view.type)}
NAMES = {structure.name for structure in STRUCTURES}
#: A record of another version is refused (test_kafka_state.py).
ONE_VALUE = {".record.version"}
WRITE = "python -m tests.formats writes it as a new version, beside the old ones"


def ids(value: Any) -> str | None:
    if isinstance(value, Path):
        return value.name
    return value.name if isinstance(value, Structure | Case) else None


# the bytes


@pytest.mark.parametrize(("structure", "case"), CASES, ids=ids)
def test_newest_golden_file_has_the_bytes_of_this_version(structure: Structure, case: Case) -> None:
    files = structure.files(case)
    assert files, f"{structure.name}/{case.name} has no golden file; {WRITE}"
    assert case.encode(case.instance) == golden(files[-1]), f"the format differs from {files[-1]}; {WRITE}"


@pytest.mark.parametrize(
    ("structure", "case"), [pair for pair in CASES if pair[1].decode is not None], ids=ids
)
def test_newest_golden_file_is_read_as_its_instance(structure: Structure, case: Case) -> None:
    assert case.decode is not None
    assert case.decode(golden(structure.files(case)[-1])) == case.instance


def test_nothing_of_an_older_golden_file_is_lost() -> None:
    found = {str(path): lost(structure, case, golden(path)) for structure, case, path in OLDER}
    assert {path: members for path, members in found.items() if members} == {}


def lost(structure: Structure, case: Case, old: bytes) -> list[str]:
    """Return the members of an older version's bytes that the present version reads no longer, or does not
    write any more."""
    if case.decode is None:
        now = golden(structure.files(case)[-1])
        had, has = ({path for path, _ in _members(data)} for data in (old, now))
        return sorted(had - has - structure.forgotten)
    now = case.encode(case.decode(old))
    has_values = dict(_members(now))
    return [
        path
        for path, value in _members(old)
        if path not in structure.forgotten and has_values.get(path, "no such member") != value
    ]


def _members(data: bytes) -> Iterator[tuple[str, Any]]:
    for number, document in enumerate(documents(data)):
        yield from members(document, f"{number}")


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (b'{"after":1,"cause":"why"}', []),
        (b'{"after":1,"reason":"why","cause":"c"}', ["0.reason"]),
    ],
)
def test_a_member_that_is_read_no_longer_is_found(old: bytes, expected: list[str]) -> None:
    from consumer.attempt.reports import CopyNeed

    case = Case("x", None, msgspec.json.encode, lambda data: msgspec.json.decode(data, type=CopyNeed))
    assert lost(Structure("x", (case,)), case, old) == expected
    assert lost(Structure("x", (case,), forgotten=frozenset(expected)), case, old) == []


@pytest.mark.parametrize(("structure", "case"), CASES, ids=ids)
def test_every_field_of_an_instance_has_another_value_than_its_default(
    structure: Structure, case: Case
) -> None:
    if structure.types:  # other structures have members by hand
        assert set(defaults_in(case.instance)) <= ONE_VALUE


@pytest.mark.parametrize("structure", STRUCTURES, ids=ids)
def test_every_field_of_a_structure_is_in_a_golden_file(structure: Structure) -> None:
    """Independent of the instances: the member's name is in the bytes."""
    text = b"".join(golden(structure.files(case)[-1]) for case in structure.cases).replace(rb"\"", b'"')
    named = {
        each.wire
        for root in structure.types
        for kind in structures_in(root)
        if not _is_list(kind)
        for each in fields(kind)
    }
    assert [name for name in sorted(named) if f'"{name}"'.encode() not in text] == []


def _is_list(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.type.__name__)
def test_partial_readers_read_every_member_that_they_name(view: View) -> None:
    seen: set[tuple[str, str]] = set()
    for document in view.documents:
        value = msgspec.json.decode(msgspec.json.encode(document), type=view.type)
        for kind, name, found, written in _read(value, document):
            assert json.loads(msgspec.json.encode(found)) == written, f"{kind}.{name}"
            seen.add((kind, name))
    expected = {
        (kind.__name__, each.wire) for kind in structures_in(view.type) - REGISTERED for each in fields(kind)
    }
    assert expected <= seen


def _read(value: Any, document: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield (type, member, what was read, what the document has) of each member that is read as another value
    than the default."""
    if isinstance(value, list):
        for each, part in zip(value, document, strict=True):
            yield from _read(each, part)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _read(each, document[name])
    elif (
        isinstance(value, msgspec.Struct) and type(value) not in REGISTERED
    ):  # whose own golden files hold them
        for each in fields(type(value)):
            found = getattr(value, each.name)
            if found == each.default:
                continue
            if any(kind not in REGISTERED for kind in structures_in(each.type)):
                yield type(value).__name__, each.wire, None, None
                yield from _read(found, document[each.wire])
            elif not isinstance(found, msgspec.Struct):
                yield type(value).__name__, each.wire, found, document[each.wire]
            else:
                yield type(value).__name__, each.wire, None, None


# golden files stay as they are


def test_every_golden_file_belongs_to_a_case() -> None:
    files = {path for structure, case in CASES for path in structure.files(case)}
    assert set(FOLDER.rglob("*.json")) == files


@pytest.mark.parametrize(("structure", "case"), CASES, ids=ids)
def test_versions_of_a_golden_file_are_numbered_without_gaps(structure: Structure, case: Case) -> None:
    names = [path.name for path in structure.files(case)]
    assert names == [f"{case.name}.v{number}.json" for number in range(1, len(names) + 1)]


KEPT = ("schemas/golden/", "tests/golden/wire/", "tests/golden/stored/")


GONE = ("tests/golden/stored/report-datagram/", "tests/golden/stored/units-board/")
"""Structures that only processes of one installation sent each other, and that are sent no more."""


def changed_since(commit: str, root: Path) -> list[str]:
    """Return the golden files of `commit` that another text, or nothing, has taken the place of."""
    shown = subprocess.run(
        ["git", "diff", "--name-status", "--no-renames", commit, "--", *KEPT],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = (line.split("\t") for line in shown.stdout.splitlines())
    return [name for status, name in lines if status != "A" and not name.startswith(GONE)]


def last_release(text: str) -> str | None:
    """Return the commit in the first row of docs/releases.md, which is the newest; None: it has no row."""
    rows = re.findall(r"^\| *\d[^|]*\|[^|]*\| *`?([0-9a-f]{7,40})`? *\|", text, re.MULTILINE)
    return rows[0] if rows else None


def test_golden_files_of_the_last_release_are_unchanged() -> None:
    page = ROOT / "docs" / "releases.md"
    commit = last_release(page.read_text()) if page.exists() else None
    if commit is None:
        pytest.skip("docs/releases.md names no release yet: there is nothing that golden files must equal")
    known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, check=False)
    if known.returncode:
        pytest.skip(f"the history of this checkout lacks the commit of the last release, {commit}")
    assert changed_since(commit, ROOT) == []


def test_the_newest_release_is_the_first_row() -> None:
    table = "# Releases\n\n| version | date | commit |\n|---|---|---|\n"
    rows = "| 0.2.0 | 2026-12-24 | `abcdef0` |\n| 0.1.0 | 2026-11-27 | 12d5352c |\n"
    assert last_release(table) is None
    assert last_release(table + rows) == "abcdef0"
    assert last_release(table + rows.splitlines()[1]) == "12d5352c"


def test_a_golden_file_that_changes_is_found_and_a_new_one_is_not(tmp_path: Path) -> None:
    def git(*command: str) -> str:
        config = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
        ran = subprocess.run(
            ["git", *config, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return ran.stdout.strip()

    folder = tmp_path / KEPT[-1]
    folder.mkdir(parents=True)
    for name in ("kept", "changed", "removed"):
        (folder / f"{name}.v1.json").write_text(f"{name}\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "release")
    release = git("rev-parse", "HEAD")
    (folder / "kept.v2.json").write_text("new\n")
    (folder / "changed.v1.json").write_text("other\n")
    (folder / "removed.v1.json").unlink()
    git("add", ".")
    assert changed_since(release, tmp_path) == [
        f"{KEPT[-1]}{name}.v1.json" for name in ("changed", "removed")
    ]
