"""Figures of the whole tree that no gate holds, for the closing notes of issues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.gates import names, state, words
from tests.gates.measures import MEASURES
from tests.gates.sources import SIBLINGS, Source, load_pages, load_product, load_sources
from tests.gates.statements import count_statements


def list_figures() -> Iterator[str]:
    """Yield the lines of the table."""
    product = load_product()
    yield "gates: what is found, and the target"
    for measure in (measure_tree() for measure_tree in MEASURES.values()):
        yield f"  {measure.gate:12} {measure.figure}; target: {measure.target}"
    yield "words of the dialect per 10,000 words"
    for group, figure in {**words.measure_code(product), **words.measure_pages(load_pages())}.items():
        yield f"  {group:20} {figure.per_10_000:6.1f}  ({figure.hits} of {figure.words:,})"
    yield "fields of the ten largest classes"
    yield from (f"  {count:4} {line}" for line, count in state.count_fields(product).most_common(10))
    beside = ", ".join(f"{name} {count_statements(load_sources(name)):,}" for name in SIBLINGS)
    yield f"statements of the tests' siblings, not counted among the tests\n  {beside}"


def list_breaches(sources: Iterable[Source]) -> Iterator[str]:
    """Yield "path:line: breach" for what is counted: words and functions' names."""
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), 1):
            if words.count_words(line).hits:
                yield f"{source.path}:{number}: words: {line.strip()}"
        for scope in names.list_functions(source):
            if breach := names.judge_name(scope):
                yield f"{source.path}:{scope.node.lineno}: {breach}: {scope.node.name}"


def list_other_project(name: str, site_packages: Path) -> Iterator[str]:
    """Yield the figures of an installed package, to compare the counters with what others count."""
    sources = load_sources(name, root=site_packages)
    figure = words.sum_figures(words.measure_code(sources).values())
    one, total = names.measure_one_word(sources)
    functions = [scope for source in sources for scope in names.list_functions(source)]
    no_verb = sum(names.judge_name(scope) == "no verb" for scope in functions)
    shares = f"{one / total:.0%} one word, {no_verb / total:.0%} without a verb"
    yield f"  {name:12} {figure.per_10_000:5.1f} per 10,000 words; {total} function names: {shares}"
