"""Finds the statements in the texts of test programs (Java, Go, Python, shell), function by function. Pure.

A literal counts as far as it is one: pieces that `+` joins are put together, and what holds a value of the
program's (`%s`, `{name}`, a piece that is no literal) is left out, as its value is not known here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from peers.sql_text import runnable, statements

Part = tuple[str, list[str]]
"""(the function's name, its statements in order)."""

_JAVA = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<block>\"\"\".*?(?<!\\)\"\"\")
      | (?P<text>"(?:[^"\\\n]|\\.)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<start>@Test\b|@ParameterizedTest\b)
      | (?P<name>(?<=void\s)\w+(?=\s*\())
      | (?P<plus>\+) | (?P<space>\s+) | (?P<word>[\w.]+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_GO = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<block>`[^`]*`)
      | (?P<text>"(?:[^"\\\n]|\\.)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<start>(?<=\n)func\b)
      | (?P<name>(?<=\nfunc\s)\w+|(?<=\)\s)Test\w+(?=\())
      | (?P<plus>\+) | (?P<space>\s+) | (?P<word>[\w.]+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "'": "'", "\\": "\\"}
_FORMATTED = re.compile(r"%[+#-]?\d*[sdvqxXt]|\{\d*\}|\$\{|\?\s*[,)]")


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found.group(1):
            return chr(int(found.group(1), 16))
        return "" if found.group(2) == "\n" else _ESCAPES.get(found.group(2), "\\" + found.group(2))

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)


def _program(grammar: re.Pattern[str], raw_block: bool, source: str) -> list[Part]:
    """Read a program by `grammar`; `raw_block`: nothing is escaped in a block."""
    found: list[tuple[str, list[str]]] = [("", [])]
    text, joined, broken = (
        "",
        False,
        False,
    )  # the literal so far; whether a + came last; whether it has a hole
    for piece in grammar.finditer(source):
        kind, written = piece.lastgroup, piece.group()
        if kind in ("space", "comment"):
            continue
        if kind == "plus":
            joined = True
            continue
        if kind in ("text", "block"):
            content = written[1:-1] if kind == "text" or raw_block else written[3:-3]
            content = content if kind == "block" and raw_block else _unescaped(content)
            if not joined:
                _close(found, text, broken)
                text, broken = "", False
            text += content
        elif joined:  # + something that is no literal
            broken = bool(text)
        elif text:
            _close(found, text, broken)
            text, broken = "", False
        joined = joined and kind == "word"
        if kind == "start":
            found.append(("", []))
        elif kind == "name" and not found[-1][0]:
            found[-1] = (written, found[-1][1])
    _close(found, text, broken)
    return found


def _close(found: list[Part], text: str, broken: bool) -> None:
    if text and not broken and not _FORMATTED.search(text):
        found[-1][1].extend(statements(text))


def _python(source: str) -> list[Part]:
    """Each test with the statements of its class's setUp before."""
    found: list[Part] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            functions = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            before = list(_texts(functions["setUp"])) if "setUp" in functions else []
            found += [
                (name, before + list(_texts(each)))
                for name, each in functions.items()
                if name.startswith("test")
            ]
    return found


def _texts(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the statements that are passed to a call, directly or by a name that a literal was given to."""
    known: dict[str, str] = {}
    for node in sorted(
        (each for each in ast.walk(function) if isinstance(each, ast.Assign | ast.Call)),
        key=lambda each: (each.lineno, each.col_offset),
    ):
        if isinstance(node, ast.Assign):
            text = _literal(node.value, known)
            known |= {
                each.id: text for each in node.targets if isinstance(each, ast.Name) and text is not None
            }
            continue
        for argument in node.args[:1]:
            text = _literal(argument, known)
            if text is not None and not _FORMATTED.search(text):
                yield from statements(text)


def _literal(node: ast.expr, known: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = _literal(left, known), _literal(right, known)
            return None if None in parts else f"{parts[0]}{parts[1]}"
    return None


# --- shell: DM's and TiCDC's tests

_FUNCTION = re.compile(r"^\s*function\s+(\w+)\s*\(?\)?\s*\{", re.MULTILINE)
_QUOTED = re.compile(r'(?P<call>run_sql\w*|run_case)\b(?P<rest>(?:\\\n|[^\n"])*"(?:[^"\\]|\\.)*")', re.DOTALL)
_CASE = re.compile(
    r'run_case\s+(?P<name>\w+)\s+"[^"]*"\s*(?:\\\n\s*)?"(?P<first>(?:[^"\\]|\\.)*)"', re.DOTALL
)


def _shell(source: str) -> list[Part]:
    """A function is a part. DM's `run_case X … "how it begins"` puts statements before those of
    `DM_X_CASE`."""
    source = re.sub(r"^\s*#.*$", "", source, flags=re.MULTILINE)
    begins = [(each.start(), each.group(1)) for each in _FUNCTION.finditer(source)]
    ends = [*(at for at, _ in begins[1:]), len(source)][: len(begins)]
    bodies = {name: source[at:end] for (at, name), end in zip(begins, ends, strict=True)}
    first: dict[str, str] = {}
    for each in _CASE.finditer(source):
        first.setdefault(f"DM_{each.group('name')}_CASE", each.group("first"))
    whole = source[: begins[0][0]] if begins else source
    parts = [("", _calls(whole))]
    for name, body in bodies.items():
        parts.append((name, _beginning(first.get(name, "")) + _calls(body)))
    return parts


def _calls(text: str) -> list[str]:
    found = []
    for each in _QUOTED.finditer(text):
        if each.group("call") != "run_case" and "tidb" not in each.group("call"):
            found += _of_source(each.group("call"), each.group("rest").split('"', 1)[1][:-1])
    return found


def _of_source(call: str, text: str) -> list[str]:
    """A second source's databases become databases of their own."""
    text = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
    if re.search(r"\$\(|\$\d|\$\{?\w+\[", text):
        return []
    text = re.sub(r"\$\{?(\w+)\}?", r"\1", text)
    if call.endswith("source2"):
        text = re.sub(r"\b(shardddl\d?)\b", r"second_\1", text)
    return statements(text)


def _beginning(text: str) -> list[str]:
    if notified := re.match(r"\s*init_table((?:\s+\d+)+)", text):
        made = []
        for digits in notified.group(1).split():
            database, table = (digits[1], digits[2]) if len(digits) > 2 else ("1", digits[1])
            where = "second_" if digits[0] == "2" else ""
            made.append(f"create table {where}shardddl{database}.tb{table} (id int primary key)")
        return made
    found = []
    for each in re.finditer(
        r'(run_sql_(?:source\d|both_source))\s+\\"((?:[^"\\]|\\(?!").)*)\\"', text, re.DOTALL
    ):
        calls = ("run_sql_source1", "run_sql_source2") if "both" in each.group(1) else (each.group(1),)
        for call in calls:
            found += _of_source(call, each.group(2))
    return found


READERS: dict[str, Callable[[str], list[Part]]] = {
    "java": partial(_program, _JAVA, False),
    "go": partial(_program, _GO, True),
    "py": _python,
    "sh": _shell,
}
"""By the ending of the file's name."""


def parts_of(ending: str, source: str) -> list[Part]:
    """Return the functions of a program that hold statements that may run."""
    read = [(name, [each for each in found if runnable(each)]) for name, found in READERS[ending](source)]
    return [(name, found) for name, found in read if found]
