"""A case: statements of one test of a peer, in databases of its own. JSON in the corpus folder, one file a
suite."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from peers.sql_text import (
    MARK,
    changes_rows,
    databases,
    defined,
    makes_table,
    marked,
    runnable,
)  # fmt: skip

MOST_STATEMENTS = 300


@dataclass(frozen=True, slots=True)
class Case:
    """`files`: `owner/name:path` of what it was made of; `databases`: the names that `statements` mark, "" is
    where it starts."""

    suite: str
    name: str
    files: tuple[str, ...]
    databases: tuple[str, ...]
    statements: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The same for two cases of the same statements."""
        return hashlib.sha256("\0".join(self.statements).encode()).hexdigest()


def case(suite: str, name: str, files: Iterable[str], found: Iterable[str]) -> Case | None:
    """Make a case of a test's statements; None: it makes no table, so there is nothing to judge."""
    taken = sown([each for each in found if runnable(each)])[:MOST_STATEMENTS]
    if not any(map(makes_table, taken)):
        return None
    known = set().union(*(databases(each) for each in taken))
    texts = tuple(marked(each, known) for each in taken)
    used = {name for each in texts for name in MARK.findall(each)}
    return Case(suite, name, tuple(files), ("", *sorted(used)), texts)


def sown(found: list[str]) -> list[str]:
    """Put a row of default values behind each definition of a table, where a test has no rows of its own."""
    if any(changes_rows(each) for each in found):
        return found
    out = []
    for each in found:
        table = defined(each)
        out += [each] if table is None else [each, f"INSERT IGNORE INTO {table} () VALUES ()"]
    return out


def write(folder: Path, suite: str, cases: Iterable[Case]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(each) for each in cases], ensure_ascii=False, indent=1)
    (folder / f"{suite}.json").write_text(text)


def read(folder: Path, suite: str | None = None) -> Iterator[Case]:
    """Yield the cases of a corpus, of all suites or of one; each of the same statements once."""
    seen: set[str] = set()
    for file in sorted(folder.glob(f"{suite or '*'}.json")):
        for each in json.loads(file.read_text()):
            found = Case(
                each["suite"],
                each["name"],
                *(tuple(each[part]) for part in ("files", "databases", "statements")),
            )
            if found.digest not in seen:
                seen.add(found.digest)
                yield found
