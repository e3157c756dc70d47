"""Gate (d): words of a private dialect, per 10,000 words.

Words are the parts of identifiers (each use of one counts), and the words of comments, string literals
(docstrings and messages among them) and pages. Names that a contract fixes are listed in wire_names.txt
with the file that has them, and do not count there; on a page they do not count between backticks.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.gates.sources import Source

MOST_IN_PRODUCT, MOST_IN_DOCS = 5, 10
"""Per 10,000 words."""
DIALECT = {
    "say", "says", "said", "tell", "told", "whoever", "nobody", "somebody", "stands", "behind", "wanted",
    "gone",
}  # fmt: skip
PHRASES = {"getting": "on", "comes": "to", "in": "force"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Figure(NamedTuple):
    """How many of `words` are of the dialect."""

    hits: int
    words: int

    @property
    def per_10_000(self) -> float:
        return 10_000 * self.hits / self.words if self.words else 0.0

    def add(self, other: Figure) -> Figure:
        return Figure(self.hits + other.hits, self.words + other.words)


def count_words(text: str) -> Figure:
    """Count the words of a text, or the parts of an identifier."""
    words = [word.lower() for word in _WORD.findall(text)]
    hits = sum(word in DIALECT for word in words)
    hits += sum(PHRASES.get(first) == second for first, second in pairwise(words))
    return Figure(hits, len(words))


def measure_code(sources: Iterable[Source]) -> dict[str, Figure]:
    """Return the figure of each package."""
    found: dict[str, Figure] = defaultdict(lambda: Figure(0, 0))
    fixed = load_wire_names()
    for source in sources:
        figure = Figure(0, 0)
        for text in list_texts(source):
            counted = _count_cached(text) if len(text) < 40 else count_words(text)
            figure = figure.add(Figure(0, counted.words) if (source.path, text) in fixed else counted)
        found[source.package] = found[source.package].add(figure)
    return dict(found)


def measure_pages(pages: dict[str, str]) -> dict[str, Figure]:
    """Return the figure of each page at the root, and of each folder of docs."""
    found: dict[str, Figure] = defaultdict(lambda: Figure(0, 0))
    fixed = {name for _, name in load_wire_names()}
    for path, text in pages.items():
        prose = re.sub(r"`([^`\n]+)`", lambda match: "wire" if match[1] in fixed else match[0], text)
        group = path.rpartition("/")[0] if path.count("/") > 1 else path
        found[group] = found[group].add(count_words(prose))
    return dict(found)


def sum_figures(figures: Iterable[Figure]) -> Figure:
    total = Figure(0, 0)
    for each in figures:
        total = total.add(each)
    return total


def list_texts(source: Source) -> Iterator[str]:
    """Yield each identifier, string and comment of a file."""
    for node in source.nodes:
        match node:
            case ast.Name(text) | ast.Attribute(_, text) | ast.arg(text) | ast.keyword(str(text)):
                yield text
            case ast.Constant(str(text)) | ast.ClassDef(text) | ast.alias(text):
                yield text
            case ast.FunctionDef(text) | ast.AsyncFunctionDef(text):
                yield text
    yield from source.comments


@cache
def load_wire_names() -> frozenset[tuple[str, str]]:
    """Return (file, name) of each name that a contract fixes."""
    text = (Path(__file__).parent / "wire_names.txt").read_text()
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return frozenset((line.partition(": ")[0], line.partition(": ")[2]) for line in lines if line)


_count_cached = cache(count_words)
