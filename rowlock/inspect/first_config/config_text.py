"""The text of a first configuration. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from rowlock.errors import CommandError
from rowlock.inspect.first_config.server_url import ServerUrl
from rowlock.inspect.first_config.table_choice import ChosenTables
from schemas.config.addresses import join_address
from schemas.table.patterns import format_table_pattern, quote_pattern_name
from schemas.wire.topic_names import OWN_TOPICS

_PLAIN_SCALAR = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./:*{}-]*")
_NAME_LENGTH = 40
_REASON_LENGTH = 90


@dataclass(frozen=True, slots=True)
class DraftServer:
    """The section of a source or target."""

    name: str
    url: ServerUrl
    """With the user to connect as."""
    password_file: str = ""
    """"": the password is in the environment variable `name_variable(name)`."""


@dataclass(frozen=True, slots=True)
class ConfigDraft:
    """A configuration of one source and one target."""

    kafka: str
    """The brokers between the two, "host:port"."""
    source: DraftServer
    target: DraftServer
    choice: ChosenTables


def choose_server_names(source: ServerUrl, target: ServerUrl) -> tuple[str, str]:
    """Return names for source and target: that of the host, or of the database where the host is a number.

    Their environment variables differ, too.
    """
    first, second = _propose_name(source), _propose_name(target)
    if first.lower() in OWN_TOPICS:
        first += "-db"
    return first, f"{second}-target" if name_variable(first) == name_variable(second) else second


def _propose_name(url: ServerUrl) -> str:
    label = url.host.partition(".")[0]
    is_number = url.host == "localhost" or ":" in url.host or not re.search("[A-Za-z]", label)
    for proposed in (*(() if is_number else (label,)), url.database):
        name = re.sub(r"[^A-Za-z0-9_]+", "-", proposed).strip("-")[:_NAME_LENGTH]
        if name:
            return name
    return url.kind


def name_variable(name: str) -> str:
    """Return the environment variable for the password of the server `name`."""
    variable = f"{name.upper().replace('-', '_')}_PASSWORD"
    return f"_{variable}" if variable[0].isdigit() else variable


def render_config(draft: ConfigDraft) -> str:
    """Return the file's text. Raises CommandError if a route cannot have the target's name."""
    source, target = draft.source, draft.target
    lines = [
        "# Written by `rowlock init`. Options that are not here have their defaults.",
        "",
        "kafka:",
        f"  bootstrap: {format_scalar(draft.kafka)}  # the Kafka between source and target",
        "",
        "sources:",
        f"  {format_scalar(source.name)}:  # keep this name: it is part of the topics' names",
        *_render_server(source, source.url.database if source.url.kind == "oracle" else ""),
        "    tables:",
        *(f"      - {format_scalar(each)}" for each in draft.choice.patterns),
        *_render_excluded(draft.choice),
        "",
        "targets:",
        f"  {format_scalar(target.name)}:",
        *_render_server(target, target.url.database),
        "",
        "pipelines:",
        f"  to-{target.name}:  # keep this name: the progress in the target belongs to it",
        f"    sources: [{format_scalar(source.name)}]",
        f"    target: {format_scalar(target.name)}",
        *_render_routes(draft),
    ]
    return "\n".join(lines) + "\n"


def _render_server(server: DraftServer, database: str) -> Iterator[str]:
    """Yield the keys of a section. `database`: to connect to; a source selects by `tables` instead."""
    url = server.url
    yield f"    type: {url.kind}"
    if not url.has_login:
        yield f"    bootstrap: {format_scalar(join_address(url.host, url.real_port))}"
        if database:
            yield f"    prefix: {format_scalar(database)}"
        return
    yield f"    host: {format_scalar(url.host)}"
    if url.port not in (None, url.usual_port):
        yield f"    port: {url.port}"
    yield f"    user: {format_scalar(url.user)}"
    if server.password_file:
        yield f"    password_file: {format_scalar(server.password_file)}"
    else:
        yield f"    password: ${{{name_variable(server.name)}}}"
    if database:
        yield f"    database: {format_scalar(database)}"


def _render_excluded(choice: ChosenTables) -> Iterator[str]:
    for each in choice.excluded:
        reason = each.problem.what if each.problem else ""
        yield f"      - {format_scalar(f'!{format_table_pattern(each.name)}')}{_render_comment(reason)}"


def _render_comment(text: str) -> str:
    """Return a comment for the end of a line, shortened, without characters that YAML refuses."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    shown = words if len(words) <= _REASON_LENGTH else f"{words[:_REASON_LENGTH]} …"
    return f"  # {shown}" if shown else ""


def _render_routes(draft: ConfigDraft) -> Iterator[str]:
    """Yield the route of a single database; the tables of several keep their database's name."""
    database, schema = draft.choice.database, _find_target_schema(draft.target.url)
    if database is None or not schema:
        return
    if "{" in schema or "}" in schema:
        raise CommandError(
            f"target {draft.target.name}: {schema} has braces, which mean placeholders in a route",
            "write the configuration by hand, with a database without braces",
        )
    yield "    routes:"
    yield f"      - from: {format_scalar(f'{quote_pattern_name(database)}.*')}"
    yield f"        to: {format_scalar(f'{quote_pattern_name(schema)}.{{table}}')}"


def _find_target_schema(url: ServerUrl) -> str:
    """Return the schema of the target tables of one database; for Kafka, the first part of their topics."""
    if url.kind == "postgres":
        return "public"
    return url.user if url.kind == "oracle" else url.database


def format_scalar(text: str) -> str:
    """Return a text as YAML that rowlock reads as this text, on one line."""
    escaped = text.replace("$", "$$")
    if _PLAIN_SCALAR.fullmatch(escaped) and yaml.safe_load(escaped) == escaped:
        return escaped
    quoted: str = yaml.safe_dump(escaped, default_style='"', allow_unicode=True, width=math.inf)
    return quoted.rstrip("\n")
