"""The gates of language and documents, and of lines by ruff, find what is planted; samples are drawn from
texts for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gates import documents, figures, sample, words
from tests.gates.sources import ROOT, Source


def count(text: str, path: str = "consumer/a.py") -> int:
    (figure,) = words.measure_code([Source(path, text)]).values()
    return figure.hits


@pytest.mark.parametrize(
    "text",
    [
        "def tell(): pass", "def f(said): pass", "class UnitGone: pass", "unit.wanted", "f(behind=1)",
        "import a.nobody", "x = 1  # it stands", "'''Whoever reads.'''", "raise E(f'{unit} says')",
        "in_force = 1",
        "class GettingOn: pass", "'it comes to'",
    ],
)  # fmt: skip
def test_a_word_of_the_dialect_is_found_in_every_kind_of_text(text: str) -> None:
    assert count(text) == 1


def test_other_words_pass() -> None:
    assert (
        count("def load_rows(essay, stand): pass  # the forces inherit; coming; getting it on\n'told_by'")
        == 1
    )


def test_figures_are_per_10_000_words() -> None:
    figure = words.count_words("one two said four")
    assert (figure, figure.per_10_000) == (words.Figure(1, 4), 2_500.0)


def test_each_use_of_an_identifier_counts() -> None:
    assert count("behind = 1\nprint(behind)") == 2


def test_wire_names_do_not_count_in_the_file_that_has_them() -> None:
    text = "behind: int = 0"
    assert count(text, "schemas/wire/copies.py") == 0
    assert count(text, "schemas/wire/records.py") == 1
    assert words.measure_pages({"docs/a.md": "`behind`, and behind"})["docs/a.md"].hits == 1


def test_every_wire_name_is_in_its_file() -> None:
    for path, name in words.load_wire_names():
        assert name in (ROOT / path).read_text(), (
            f"{path} does not have {name!r}: take the line out of wire_names.txt"
        )


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see design.md", ["design.md"]),
        ("see docs/explanation/model.md and model.md", []),
        ("see docs/explanation/design.md", ["docs/explanation/design.md"]),
        ("docs/adr/0005 and docs/adr/0999", ["docs/adr/0999"]),
        ("tests/gates, tests/gates/words and tests/gates/word.py", ["tests/gates/word.py"]),
        ("ADR 15, ADR 999", ["ADR 999"]),
        ("as §6 has it", ["§6"]),
        ("a rule (R17), findings 3 and 4, complaint 16", ["R17", "findings 3", "complaint 16"]),
        ("files in docs/ and https://example.org/docs/x.md", []),
        ("no_such_module.py", ["no_such_module.py"]),
    ],
)
def test_what_a_text_names_and_the_repository_lacks_is_found(text: str, missing: list[str]) -> None:
    assert list(documents.list_missing(text)) == missing


def test_documents_are_looked_for_in_docstrings_comments_and_messages() -> None:
    texts = ['"""See a1.md."""', "x = 1  # see a2.md", "raise E('see a3.md')", "raise E(f'see a4.md of {x}')"]
    code = Source("consumer/a.py", "\n".join(texts))
    assert documents.find_missing([code]) == {f"consumer/a.py: a{n}.md" for n in (1, 2, 3, 4)}
    assert len(documents.find_missing([Source("tests/a.py", code.text)])) == 2


def test_ruff_refuses_lines_of_more_than_110_characters() -> None:
    """`make lint` runs it with the same settings; a line that is a value of its own has `noqa: E501`."""
    text = f"a = '{'x ' * 52}'\nb = '{'x ' * 53}'\n"
    assert [len(line) for line in text.splitlines()] == [110, 112]
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--output-format",
        "concise",
        "--stdin-filename",
        "consumer/a.py",
        "-",
    ]
    ended = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    assert ["E501" in line for line in ended.stdout.splitlines() if line.startswith("consumer/a.py")] == [
        True
    ], ended
    assert "a.py:2:" in ended.stdout


def test_what_is_counted_is_shown_line_by_line() -> None:
    text = "def table():\n    pass  # nobody\n"
    assert list(figures.list_breaches([Source("consumer/a.py", text)])) == [
        "consumer/a.py:2: words: pass  # nobody",
        "consumer/a.py:1: no verb: table",
    ]


def test_statements_are_counted_without_docstrings() -> None:
    text = '"""A module."""\ndef run():\n    """Run."""\n    if x:\n        return 1\n'
    assert figures.count_statements([Source("consumer/a.py", text)]) == 3


SAMPLED = Source(
    "consumer/a.py",
    '''"""Reads the rows of a topic. Too short."""
def run(unit):
    log.warning("unit stopped", unit=unit, cause="x")
    raise StoppedError(f"{unit.name} has stopped at last", 5)
@click.option("--wait", help="Wait for the unit to stop.")
@click.command()
def stop():
    """Stop each unit of a pipeline."""
    click.echo("all units have stopped")
''',
)


def test_sentences_are_drawn_from_all_texts_for_people() -> None:
    assert {(each.kind, each.text, each.place) for each in sample.list_in_code([SAMPLED])} == {
        ("docstring", "Reads the rows of a topic.", "consumer/a.py:1"),
        ("log event", "unit stopped (unit=…, cause=…)", "consumer/a.py:3"),
        ("message", "{unit.name} has stopped at last", "consumer/a.py:4"),
        ("help", "Wait for the unit to stop.", "consumer/a.py:5"),
        ("help", "Stop each unit of a pipeline.", "consumer/a.py:8"),
        ("message", "all units have stopped", "consumer/a.py:9"),
    }


def test_sentences_of_pages_are_those_of_their_paragraphs() -> None:
    prose = "A row is\nread once. So is a unit.\n\n- An item of a list.\n"
    page = f"# A heading of four words\n\n{prose}\n```\nnot this one here\n```\n\n| nor a table's cell |\n"
    assert [each.text for each in sample.list_in_docs({"docs/a.md": page})] == [
        "A row is read once.", "So is a unit.", "An item of a list.",
    ]  # fmt: skip


def test_a_seed_draws_the_same_sentences_again_as_many_of_each_kind() -> None:
    pages = {"docs/a.md": "A row is read once. Another row is read twice."}
    drawn = sample.draw_sentences([SAMPLED], pages, 5, seed=1)
    assert drawn == sample.draw_sentences([SAMPLED], pages, 5, seed=1)
    assert sorted(each.kind for each in drawn) == sorted(sample.KINDS)
    assert f"{drawn[0].place}\n   {drawn[0].text}" in "".join(sample.show_answers(drawn))


def test_a_path_is_not_taken_for_a_document_of_another_tree(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "own.md").touch()
    assert list(documents.list_missing("docs/own.md, own.md, model.md", tmp_path)) == ["model.md"]
