"""Gate (e): every path and document that a docstring, a comment or a message names is in the repository.

What counts: a path that begins with a folder of the tree (`docs/adr/0005`: the start of a file's name is
enough), a page or module by its name alone (`model.md`, `loop.py`), a decision by its number (`ADR 15`),
and references to documents elsewhere: section signs, and rules, findings and complaints by number.
In tests and their siblings only docstrings and comments count: other strings name files that a test makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.gates.sources import PRODUCT, ROOT, SIBLINGS, Source

_HEADS = "|".join((*PRODUCT, *SIBLINGS, "docs", "tests", "tools", "research"))
_PATH = re.compile(rf"(?<![\w./:@{{}}-])(?:(?:{_HEADS})/[\w./-]*|\.ci/\w+)(?![{{*])")
_FILE = re.compile(r"(?<![\w./*{}-])[\w-]+\.(?:md|py)\b(?![({])")
_DECISION = re.compile(r"\bADRs? (\d+)")
_FOREIGN = re.compile(r"§ ?\d*|\bR\d{1,2}\b|\b[Ff]indings? \d+|\bcomplaints? \d+")


def find_missing(sources: Iterable[Source], root: Path = ROOT) -> set[str]:
    """Return "path: what it names" for all that does not exist below `root`."""
    return {
        f"{source.path}: {name}"
        for source in sources
        for text in source.texts
        if source.package not in ("tests", *SIBLINGS) or text.startswith(('"""', "#"))
        for name in list_missing(text, root)
    }


def list_missing(text: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what a text names and `root` does not have."""
    for match in _PATH.finditer(text):
        path = match[0].rstrip("./-")
        if "/" in path and not _exists(root, path):
            yield path
    for match in _FILE.finditer(text):
        if match[0] not in _file_names(root):
            yield match[0]
    for match in _DECISION.finditer(text):
        if not _exists(root, f"docs/adr/{int(match[1]):04}"):
            yield match[0]
    yield from (match[0] for match in _FOREIGN.finditer(text))


@cache
def _exists(root: Path, path: str) -> bool:
    """Whether there is a file or folder, or a module, or a decision whose name begins so."""
    if (root / path).exists() or (root / f"{path}.py").exists():
        return True
    return path.startswith("docs/adr/") and any((root / "docs" / "adr").glob(f"{path.rpartition('/')[2]}-*"))


@cache
def _file_names(root: Path) -> frozenset[str]:
    folders = (path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    below = (
        path.name for folder in folders for suffix in ("py", "md") for path in folder.rglob(f"*.{suffix}")
    )
    return frozenset({*below, *(path.name for path in root.iterdir())})
