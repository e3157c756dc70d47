"""`python -m tests.gates --sample COUNT --seed N`: sentences for readers without the repository.

As many of each kind: docstrings, messages of errors and of the command line, log events, help texts, docs.
The sentences are printed without their places; these, with the text around each, are written to a file of
answers. Readers get the sentences alone, and restate each as who does what to what.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.gates.sources import Function, Source

KINDS = ("docstring", "message", "log event", "help", "docs")
_LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"*(])")
_FEWEST_WORDS = 4


class Sentence(NamedTuple):
    """A sentence, where it is, and the whole text that it is from."""

    kind: str
    text: str
    place: str
    context: str


def draw_sentences(sources: Iterable[Source], pages: dict[str, str], count: int, seed: int) -> list[Sentence]:
    """Return `count` different sentences in random order, the same ones for the same tree and seed."""
    every = sorted({each.text: each for each in (*list_in_code(sources), *list_in_docs(pages))}.values())
    drawn = random.Random(seed)
    chosen: list[Sentence] = []
    for number, kind in enumerate(KINDS):
        pool = [each for each in every if each.kind == kind]
        share = (count - len(chosen)) // (len(KINDS) - number)
        chosen += drawn.sample(pool, min(share, len(pool)))
    drawn.shuffle(chosen)
    return chosen


def list_in_code(sources: Iterable[Source]) -> Iterator[Sentence]:
    """Yield the sentences of docstrings, messages, log events and help texts."""
    for source in sources:
        for node in source.nodes:
            for kind, part in _list_texts(node):
                text = _render(part)
                place = f"{source.path}:{getattr(part, 'lineno', 1)}"
                for sentence in [text] if kind == "log event" else split_sentences(text):
                    yield Sentence(kind, sentence, place, text)


def list_in_docs(pages: dict[str, str]) -> Iterator[Sentence]:
    """Yield the sentences of pages, without headings, tables and code."""
    for path, page in pages.items():
        prose = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
            if not paragraph.lstrip().startswith(("#", "|", "<")):
                for sentence in split_sentences(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", paragraph)):
                    yield Sentence("docs", sentence, path, " ".join(paragraph.split()))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line, without those of a few words."""
    plain = " ".join(text.split())
    return [each for each in _END.split(plain) if len(each.split()) >= _FEWEST_WORDS]


def _list_texts(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the texts of a node for people, with their kinds."""
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            if ast.get_docstring(node) and isinstance(node.body[0], ast.Expr):
                command = isinstance(node, Function) and "command(" in "".join(
                    map(ast.unparse, node.decorator_list)
                )
                yield "help" if command else "docstring", node.body[0].value
        case ast.Raise(ast.Call(_, arguments)):
            yield from (
                ("message", each) for each in arguments if isinstance(each, ast.Constant | ast.JoinedStr)
            )
        case ast.Call(ast.Attribute(_, "echo"), [ast.Constant() | ast.JoinedStr() as text, *_]):
            yield "message", text
        case ast.Call(ast.Attribute(ast.Name("log"), level), [ast.Constant() as text, *_]) if (
            level in _LEVELS
        ):
            yield "log event", ast.JoinedStr([text, ast.Constant(_list_keys(node))], lineno=text.lineno)
        case ast.keyword("help", ast.Constant() as text):
            yield "help", text


def _list_keys(call: ast.Call) -> str:
    keys = [f"{each.arg}=…" for each in call.keywords if each.arg and each.arg != "exc_info"]
    return f" ({', '.join(keys)})" if keys else ""


def _render(node: ast.expr) -> str:
    """Return a literal's text, with the expressions of an f-string in braces."""
    match node:
        case ast.Constant(value):
            return str(value)
        case ast.JoinedStr(values):
            return "".join(map(_render, values))
        case ast.FormattedValue(value):
            return f"{{{ast.unparse(value)}}}"
    return ""


def show_answers(sentences: Iterable[Sentence]) -> Iterator[str]:
    """Yield the lines of the file of answers."""
    for number, each in enumerate(sentences, 1):
        yield f"{number}. [{each.kind}] {each.place}\n   {each.text}\n   whole: {each.context}\n"
