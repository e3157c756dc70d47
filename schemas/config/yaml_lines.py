"""YAML with line numbers: converts a file into plain data and keeps the line of every key.

PyYAML's composed nodes have line marks, which its constructed objects lose, so this module walks the
tree of nodes. On the way it replaces `${NAME}` from the environment, reads `…_file`, and finds
duplicate keys. The file system and the environment are passed as arguments: the walk itself is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml

from schemas.config.errors import ConfigProblem

Path = tuple[str, ...]
_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Keys with a scalar that is taken as it is written (a password 0123 is not the number 83).
_VERBATIM = {"password", "token", "mask_salt"}
#: Mappings in which all scalars are taken as they are written.
_VERBATIM_MAPS = {("kafka", "options")}
#: Such mappings in each entry of a section: (section, key).
_VERBATIM_EACH = {("targets", "options")}


@dataclass(slots=True)
class YamlDocument:
    """A parsed file: plain `data`, the line of every path (from 1), and the problems found on the way.

    `hidden` paths contain secrets, or text from a file or the environment: never print their values.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    hidden: set[Path] = field(default_factory=set)
    secret_files: dict[Path, str] = field(default_factory=dict)
    """Path → the file of its text, as it is written in the configuration."""
    variables: dict[Path, str] = field(default_factory=dict)
    """Path → the last environment variable in its text."""
    problems: list[ConfigProblem] = field(default_factory=list)

    def find_line(self, path: Path) -> int:
        """Return the line of `path`, or of the nearest enclosing key that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def forget_origin(self, path: Path) -> None:
        """Forget that the text of `path` came from a file or a variable."""
        self.secret_files.pop(path, None)
        self.variables.pop(path, None)

    def add_problem(self, path: Path, seen: str, right: str) -> None:
        self.problems.append(ConfigProblem(self.find_line(path), ".".join(path), seen, right))

    def add_unknown_name(self, path: Path, what: str, name: str, known: Sequence[str]) -> None:
        """Add the problem that `name` is not defined, with a suggestion."""
        close = get_close_matches(name, known, n=1)
        choice = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
        self.add_problem(path, f"there is no {what} {name!r}", choice)


def parse_yaml(text: str, env: Mapping[str, str], read_file: Callable[[str], str]) -> YamlDocument:
    """Parse YAML `text`.

    `read_file` returns a secret file's text and raises OSError or UnicodeDecodeError.
    """
    document = YamlDocument()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        document.problems.append(_build_syntax_problem(error))
        return document
    document.data = {} if node is None else _NodeWalker(document, env, read_file).convert_value(node, ())
    return document


def _build_syntax_problem(error: yaml.YAMLError) -> ConfigProblem:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 0
    seen = getattr(error, "problem", None) or str(error)
    return ConfigProblem(line, "", f"not YAML: {seen}", "check indentation, quotes and colons on this line")


class _NodeWalker:
    def __init__(
        self, document: YamlDocument, env: Mapping[str, str], read_file: Callable[[str], str]
    ) -> None:
        self._document = document
        self._env = env
        self._read_file = read_file

    def convert_value(self, node: yaml.Node, path: Path) -> Any:
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag.startswith("!"):
            self._add_tag_problem(node.tag, path)
            return ""
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.convert_value(item, (*path, str(i))) for i, item in enumerate(node.value)]
        return self._convert_scalar(node, path)

    def _add_tag_problem(self, tag: str, path: Path) -> None:
        """Add the problem of a value without quotes that begins with "!", which YAML takes for a type."""
        right = "write it in quotes" if _is_secret(path) else f'write it in quotes: "{tag}"'
        self._document.add_problem(path, 'a value that begins with "!" needs quotes', right)

    def _convert_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = str(key_node.value)
            key, secret_file = _parse_file_key(name, path)
            at = (*path, key)
            if key in out:
                self._document.lines[at] = key_node.start_mark.line + 1
                self._document.add_problem(at, f"{name!r} is given twice", f"give {key!r} once")
                continue
            self._document.lines[at] = key_node.start_mark.line + 1
            out[key] = self._from_file(value_node, at) if secret_file else self.convert_value(value_node, at)
        return out

    def _convert_scalar(self, node: yaml.Node, path: Path) -> Any:
        text = str(node.value)
        if _is_secret(path):
            self._document.hidden.add(path)
        if "$" in text:
            return self._expand_variables(text, path)
        if path[-1:] and (path[-1] in _VERBATIM or _is_verbatim_map(path[:-1])):
            return text
        try:
            return _construct_scalar(node)
        except (ValueError, yaml.YAMLError):
            seen = "YAML cannot read this value" if path in self._document.hidden else f"{text!r} is no value"
            self._document.add_problem(path, seen, "write it in quotes if it is a text")
            return ""

    def _expand_variables(self, text: str, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match.group(1)
            if name is None:  # "$$" is a dollar sign
                return "$"
            if not _NAME.match(name):
                self._document.add_problem(
                    path, f"${{{name}}} is no name of a variable", "write ${NAME}, or $$ for a $"
                )
            elif name not in self._env:
                self._document.add_problem(
                    path, f"the environment has no {name}", f"set {name} before starting rowlock"
                )
            else:
                self._document.variables[path] = name
            return self._env.get(name, "")

        expanded = _REFERENCE.sub(replace, text)
        if expanded != text:
            self._document.hidden.add(path)
        return expanded

    def _from_file(self, node: yaml.Node, path: Path) -> str:
        self._document.hidden.add(path)
        name = self._document.secret_files[path] = self._expand_variables(str(node.value), path)
        try:
            return self._read_file(name).rstrip("\r\n")
        except OSError as error:
            self._document.add_problem(
                path, f"cannot read {name}: {error.strerror}", "give a file that this user can read"
            )
        except UnicodeDecodeError:
            self._document.add_problem(
                path, f"{name} is not UTF-8 text", "give a text file with the secret alone"
            )
        return ""


def _parse_file_key(name: str, path: Path) -> tuple[str, bool]:
    """Return the key that `name` sets, and whether its value is read from a file ("password_file")."""
    bare = name.removesuffix("_file")
    return (bare, True) if bare != name and _is_secret((*path, bare)) else (name, False)


def _is_secret(path: Path) -> bool:
    return bool(path) and (
        path[-1] in _VERBATIM or (_is_verbatim_map(path[:-1]) and is_secret_option(path[-1]))
    )


def _is_verbatim_map(path: Path) -> bool:
    return path in _VERBATIM_MAPS or (len(path) == 3 and (path[0], path[2]) in _VERBATIM_EACH)


def is_secret_option(name: str) -> bool:
    """Return whether a librdkafka setting contains a secret."""
    return any(word in name for word in ("password", "secret", "key.pem", "jaas", "token"))


def _construct_scalar(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()
