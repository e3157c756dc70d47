"""All gates over this tree: what each finds, and how far that is from its target (issue 30, stage 0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.gates import documents, names, state, words
from tests.gates.ratchet import Measure
from tests.gates.sources import Source, load_other, load_pages, load_product, load_sources
from tests.gates.statements import count_statements


def measure_fields() -> Measure:
    breaches = state.find_breaches(load_product())
    rules = ", ".join(f"{sum(b.startswith(rule) for b in breaches)} {rule}" for rule in state.RULES)
    return Measure("fields", f"{len(breaches)} ({rules})", "0", dict.fromkeys(breaches, 1), is_list=True)


def measure_shapes() -> Measure:
    return judge_shapes(state.measure_shapes(load_product()))


def judge_shapes(fields: dict[str, int]) -> Measure:
    figure = ", ".join(f"{name} {count}" for name, count in fields.items())
    large = {name: count for name, count in fields.items() if count > state.MOST_FIELDS}
    return Measure("shapes", figure, f"{state.MOST_FIELDS} fields each", large, is_list=False)


def measure_meanings() -> Measure:
    found = names.find_several_meanings(load_product())
    constants, functions = sum(map(str.isupper, found)), sum(map(str.islower, found))
    types = len(found) - functions - constants
    figure = f"{len(found)} ({functions} functions, {types} classes and aliases, {constants} constants)"
    target = f"0 without a reason, {names.MOST_REASONS} with one"
    return Measure("meanings", figure, target, dict.fromkeys(found, 1), is_list=True)


def measure_verbs() -> Measure:
    found = names.measure_verbs(load_product())
    total = names.measure_one_word(load_product())[1]
    figure = ", ".join(
        f"{kind} {count} ({count / total:.0%})"
        for kind in names.BREACHES
        for count in [sum(n for key, n in found.items() if key.endswith(kind))]
    )
    return Measure("verbs", figure, "0", dict(found), is_list=False)


def measure_one_word() -> Measure:
    return judge_share(*names.measure_one_word(load_product()))


def judge_share(one: int, total: int) -> Measure:
    share = 100 * one / total
    values = {"share of the product, per mille": round(10 * share)} if share > names.MOST_ONE_WORD else {}
    return Measure(
        "one-word", f"{share:.1f} % of {total} functions", f"{names.MOST_ONE_WORD} %", values, is_list=False
    )


def measure_product_words() -> Measure:
    return judge_words("words", words.measure_code(load_product()), words.MOST_IN_PRODUCT)


def measure_docs_words() -> Measure:
    return judge_words("docs words", words.measure_pages(load_pages()), words.MOST_IN_DOCS)


def judge_words(gate: str, figures: dict[str, words.Figure], most: int) -> Measure:
    total = words.sum_figures(figures.values())
    values = (
        {group: each.hits for group, each in figures.items() if each.hits} if total.per_10_000 > most else {}
    )
    return Measure(gate, f"{total.per_10_000:.1f} per 10,000 words", f"{most}", values, is_list=False)


def measure_documents() -> Measure:
    missing = documents.find_missing((*load_product(), *load_other()))
    return Measure("documents", f"{len(missing)} do not exist", "0", dict.fromkeys(missing, 1), is_list=True)


def measure_tests() -> Measure:
    return judge_tests(load_product(), load_sources("tests"))


def judge_tests(product: Iterable[Source], tests: Iterable[Source]) -> Measure:
    in_product, in_tests = count_statements(product), count_statements(tests)
    ratio = in_tests / in_product
    figure = f"{ratio:.2f} statements for one of the product ({in_tests:,} to {in_product:,})"
    values = {"statements for 100 of the product": round(100 * ratio)}
    return Measure("tests", figure, "no more than the baseline", values, is_list=False)


MEASURES: dict[str, Callable[[], Measure]] = {
    "fields": measure_fields,
    "shapes": measure_shapes,
    "meanings": measure_meanings,
    "verbs": measure_verbs,
    "one-word": measure_one_word,
    "words": measure_product_words,
    "docs words": measure_docs_words,
    "documents": measure_documents,
    "tests": measure_tests,
}
