"""`rowlock init`: writes a first configuration from two URLs, checks it, and shows what a run will copy.

It changes nothing on a server, and writes a file only once both servers have answered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from rowlock.commands.options import (
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    FINDING,
    FINE,
    report_command_errors,
)

if TYPE_CHECKING:
    from rowlock.commands.init_questions import ChosenBroker, Password, Questioner
    from rowlock.inspect.first_config.config_text import ConfigDraft
    from rowlock.inspect.first_config.server_survey import SurveyedServer
    from rowlock.inspect.first_config.server_url import ServerUrl, Side
    from schemas.config.model import Config

USUAL_BROKER = "127.0.0.1:9092"
PASSWORD_TRIES = 3
T = TypeVar("T")


@click.command()
@click.argument("source", metavar="[SOURCE_URL]", required=False)
@click.argument("target", metavar="[TARGET_URL]", required=False)
@click.option(
    "--kafka", metavar="HOST:PORT", help=f"A Kafka broker between the two.  [default: {USUAL_BROKER}]"
)
@click.option(
    "--tables",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Tables to capture, as database.table with * and ?; may be repeated.  [default: all that can be]",
)
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_CONFIG_FILE,
    help="The configuration to write; files with passwords are written beside it.  "
    f"[default: ./{DEFAULT_CONFIG_FILE}, even if {CONFIG_VARIABLE} is set]",
)
@click.option("--yes", is_flag=True, help="Ask nothing: take the defaults.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@report_command_errors
def init(  # noqa: PLR0917 - click passes options by name
    source: str | None,
    target: str | None,
    kafka: str | None,
    patterns: tuple[str, ...],
    config_file: Path,
    yes: bool,
    force: bool,
) -> None:
    """Write a first configuration for two databases, and check it.

    For example: rowlock init mysql://rowlock@branch1/bank postgresql://rowlock@hq/hq. Without URLs it asks
    for them.

    It lists the source's tables, prints the statements that the two servers still need, and shows what
    `rowlock run` will copy. It changes nothing on the servers. Exit 1 if a finding would stop a run.
    """
    from rowlock.commands.init_questions import ChosenBroker, Questioner, ask_broker, ask_urls
    from rowlock.errors import CommandError

    questioner = Questioner(not yes, config_file, force)
    try:
        questioner.require_replaceable(config_file)
        urls = ask_urls(questioner, source, target)
        broker = ChosenBroker(kafka) if kafka else ask_broker(questioner, USUAL_BROKER)
        healthy = _write_and_check(questioner, urls, broker, patterns, config_file)
    except click.Abort:
        raise CommandError(
            "a question had no answer, and nothing was written", "answer it, or add --yes"
        ) from None
    sys.exit(FINE if healthy else FINDING)


def _write_and_check(
    questioner: Questioner,
    urls: tuple[ServerUrl, ServerUrl],
    broker: ChosenBroker,
    patterns: Sequence[str],
    config_file: Path,
) -> bool:
    """Return whether nothing that was found would stop a run."""
    from rowlock.commands.init_questions import ask_choice, find_password
    from rowlock.commands.init_report import describe_server, show_check, show_kafka, show_tables
    from rowlock.inspect.first_config.config_text import ConfigDraft, DraftServer, choose_server_names
    from rowlock.inspect.first_config.server_survey import read_source, require_target
    from rowlock.inspect.first_config.table_choice import (
        ChosenTables,
        complete_pattern,
    )
    from schemas.table.patterns import quote_pattern_name

    database = "" if urls[0].kind == "oracle" else urls[0].database
    patterns = [complete_pattern(each, database) for each in patterns]
    names = choose_server_names(*urls)
    found: list[ServerUrl] = []
    passwords: dict[str, Password] = {}
    sides: tuple[Side, Side] = ("source", "target")
    for side, name, url in zip(sides, names, urls, strict=True):
        passwords[name] = find_password(questioner, side, name, url)
        server = _detect_server(questioner, passwords, _Server(side, name, url))
        click.echo(f"{side} {name}: {describe_server(server)}")
        found.append(server.url)

    def build_draft(choice: ChosenTables) -> ConfigDraft:
        source, target = (
            DraftServer(name, url, file.name if (file := passwords[name].file) else "")
            for name, url in zip(names, found, strict=True)
        )
        return ConfigDraft(broker.bootstrap, source, target, choice)

    def build_whole_draft() -> ConfigDraft:
        whole = f"{quote_pattern_name(database)}.*" if database else "*.*"
        return build_draft(ChosenTables(tuple(patterns) or (whole,)))

    def build_whole_config() -> Config:
        return _build_config(config_file, build_whole_draft(), passwords)

    (source, target), retry = names, partial(_retry_login, questioner, passwords)
    unreached = broker.problem or show_kafka(build_whole_config(), source)
    retry(_Server("target", target, found[1]), lambda: require_target(build_whole_config(), target))
    listed = retry(_Server("source", source, found[0]), lambda: read_source(build_whole_config(), source))
    show_tables(build_whole_draft(), listed, are_numbered=questioner.asks and not patterns)
    draft = build_draft(ask_choice(questioner, listed, patterns, database))
    _build_config(config_file, draft, passwords)  # raises before anything is written
    _write_files(config_file, draft, passwords.values())
    return show_check(config_file, listed, draft, unreached)


class _Server(NamedTuple):
    side: Side
    name: str
    """Its name in the configuration."""
    url: ServerUrl


def _detect_server(questioner: Questioner, passwords: dict[str, Password], server: _Server) -> SurveyedServer:
    from rowlock.inspect.first_config.server_survey import detect_make

    side, name, url = server

    def detect() -> SurveyedServer:
        return detect_make(f"{side} {name}", url, passwords[name].text)

    return _retry_login(questioner, passwords, server, detect)


def _retry_login(
    questioner: Questioner,
    passwords: dict[str, Password],
    server: _Server,
    connect: Callable[[], T],
) -> T:
    """Return what `connect` returns. On a terminal, a refused password is asked for again and replaced in
    `passwords`.

    Raises CommandError.
    """
    from rowlock.commands.init_questions import ask_password_again
    from rowlock.commands.init_report import show_new_user
    from rowlock.errors import CommandError
    from rowlock.inspect.first_config.server_survey import correct_make
    from schemas.io.refused_logins import REFUSED_LOGINS
    from schemas.io.server_errors import explain_anonymous_user

    side, name, url = server
    login = (url.host, url.real_port, url.user)
    for number in range(1, PASSWORD_TRIES + 1):
        try:
            return connect()
        except CommandError as error:
            if not REFUSED_LOGINS.is_refused(*login, passwords[name].text):
                raise
            if number == 1:
                show_new_user(side, name, correct_make(url))
            if number == PASSWORD_TRIES or not questioner.can_ask_again:
                raise
            what = error.problem.what
            hint = explain_anonymous_user(what) if number > 1 else ""
            click.echo(f"rowlock: {what}; type the password again{hint}", err=True)
            passwords[name] = ask_password_again(questioner, name, url, passwords[name])
            REFUSED_LOGINS.forget_refusal(*login, passwords[name].text)
    raise AssertionError("the last attempt returns or raises")


def _build_config(config_file: Path, draft: ConfigDraft, passwords: Mapping[str, Password]) -> Config:
    """Return the configuration of a draft that is not written yet. Raises CommandError."""
    from rowlock.errors import CommandError
    from rowlock.inspect.first_config.config_text import render_config
    from schemas.config.load import build_config
    from schemas.config.model import ConfigErrors

    texts = {each.file.name: each.text for each in passwords.values() if each.file}
    # Messages must not name the file of a new password, which is not written yet.
    sides = {draft.source.name: "sources", draft.target.name: "targets"}
    new: dict[tuple[str, ...], str] = {
        (sides[name], name, "password"): each.text for name, each in passwords.items() if each.is_new
    }
    try:
        return build_config(config_file, render_config(draft), os.environ, new, texts.__getitem__)
    except ConfigErrors as error:
        seen = "; ".join(f"{each.place}: {each.seen}" for each in error.problems)
        raise CommandError(seen, "; ".join(each.right for each in error.problems)) from error


def _write_files(config_file: Path, draft: ConfigDraft, passwords: Iterable[Password]) -> None:
    from rowlock.errors import CommandError
    from rowlock.inspect.first_config.config_text import render_config

    files = [(each.file, each.text, 0o600) for each in passwords if each.file and each.is_new]
    for file, text, mode in [*files, (config_file, render_config(draft), 0o666)]:
        try:
            _replace_file(file, text, mode)
        except OSError as error:
            raise CommandError(
                f"{file} cannot be written: {error.strerror}", "name another file with -c"
            ) from error
        click.echo(f"written: {file}")


def _replace_file(file: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all. `mode`: its permissions, of which the umask removes some."""
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    number = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(number)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
