"""The questions of `rowlock init`: URLs, passwords, and tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import click

from rowlock.errors import KAFKA_REMEDY, CommandError
from rowlock.inspect.first_config.config_text import name_variable
from rowlock.inspect.first_config.server_url import ServerUrl, Side, parse_server_url
from rowlock.inspect.first_config.table_choice import ALL, ChosenTables, TableList, choose_tables
from schemas.config.addresses import join_address
from schemas.io.kafka_probe import explain_missing_broker
from schemas.problems import Problem

USUAL_USER = "rowlock"
_FORMS: dict[Side, str] = {
    "source": "mysql://USER@HOST/DATABASE, also mariadb:// and oracle://",
    "target": "postgresql://USER@HOST/DATABASE, also mysql://, mariadb://, oracle:// and kafka://",
}


@dataclass(frozen=True, slots=True)
class Questioner:
    """Asks a person, or takes the defaults."""

    asks: bool
    config_file: Path
    """The configuration to write; files with passwords are written beside it."""
    replaces: bool
    """Whether existing files are replaced without a question."""

    @property
    def can_ask_again(self) -> bool:
        """Return whether a person can correct an answer; a script's next line answers another question."""
        return self.asks and sys.stdin.isatty()

    def ask_text(self, question: str, default: str | None = None, *, option: str = "") -> str:
        """Return the answer. Raises CommandError if there is no default and no question is allowed."""
        if self.asks:
            return str(click.prompt(question, default=default))
        if default is None:
            raise CommandError(f"{option} is missing", f"give {option}, or leave out --yes")
        return default

    def require_replaceable(self, file: Path) -> None:
        """Raise CommandError if `file` exists and must not be replaced."""
        if not file.exists() or self.replaces:
            return
        if not self.asks or not click.confirm(f"{file} exists. Replace it?"):
            raise CommandError(f"{file} exists", "add --force to replace it, or -c to write another one")

    def may_use_password(self, place: str, server: str, url: ServerUrl) -> bool:
        """Return whether the password in `place` may be sent to the server: another one with a host of the
        same first label may have it.

        `server`: "source NAME" or "target NAME". The answer is yes if no question is allowed.
        """
        login = f"{url.user}@{join_address(url.host, url.real_port)}"
        if self.asks:
            return click.confirm(f"Use the password in {place} for {login}?", default=None)
        click.echo(f"{server}: the password in {place} is used for {login}")
        return True


@dataclass(frozen=True, slots=True)
class Password:
    """The password of a server, and its place."""

    text: str = field(repr=False)
    file: Path | None
    """None: it is in the environment, or there is none."""
    is_new: bool
    """Whether the file has to be written."""


class ChosenBroker(NamedTuple):
    """The address of Kafka."""

    bootstrap: str
    problem: Problem | None = None
    """Why no broker answers there, if that is known already."""


def ask_urls(questioner: Questioner, source: str | None, target: str | None) -> tuple[ServerUrl, ServerUrl]:
    """Return the URLs of both sides, with the users to connect as. Raises CommandError."""
    given: dict[Side, str | None] = {"source": source, "target": target}
    urls = []
    for side, text in given.items():
        url = parse_server_url(text, side) if text else _ask_url(questioner, side)
        if url.has_login and not url.user:
            url = replace(url, user=questioner.ask_text(f"User of the {side}", USUAL_USER))
        urls.append(url)
    return urls[0], urls[1]


def _ask_url(questioner: Questioner, side: Side) -> ServerUrl:
    """Ask for the URL of a side until it is valid. Raises CommandError if no question is allowed."""
    while True:
        answer = questioner.ask_text(f"URL of the {side} ({_FORMS[side]})", option=f"{side.upper()}_URL")
        try:
            return parse_server_url(answer, side)
        except CommandError as error:
            click.echo(f"rowlock: {error}", err=True)


def ask_broker(questioner: Questioner, default: str) -> ChosenBroker:
    """Return the address of Kafka, asked for until a broker answers there or a person insists."""
    from rowlock.inspect.checks.kafka_check import TRIAL_BROKER

    broker = default
    while True:
        broker = questioner.ask_text("Kafka between them, HOST:PORT", broker)
        if not questioner.asks or (missing := explain_missing_broker(broker)) is None:
            return ChosenBroker(broker)
        click.echo(f"{missing}. To try rowlock on this machine: {TRIAL_BROKER} (in another terminal)")
        if click.confirm("Use this address although no broker answers?", default=False):
            return ChosenBroker(broker, Problem(missing, KAFKA_REMEDY))


def find_password(questioner: Questioner, side: str, name: str, url: ServerUrl) -> Password:
    """Return the password of a server: of its URL, its file, its variable, or the answer to a question.

    Raises CommandError.
    """
    if not url.has_login:
        return Password("", None, is_new=False)
    file, variable = _get_password_file(questioner, name), name_variable(name)
    stored, server = _read_password(file) if file.exists() else None, f"{side} {name}"
    if url.password is not None:
        if url.password == stored:
            return Password(stored, file, is_new=False)
        return Password(url.password, _choose_new_file(questioner, name), is_new=True)
    if stored is not None and questioner.may_use_password(str(file), server, url):
        return Password(stored, file, is_new=False)
    if variable in os.environ and questioner.may_use_password(variable, server, url):
        return Password(os.environ[variable], None, is_new=False)
    if not questioner.asks:
        raise CommandError(
            f"no password is known for user {url.user} of {name}", f"write it into {file}, or set {variable}"
        )
    return _ask_password(url, _choose_new_file(questioner, name))


def _ask_password(url: ServerUrl, file: Path) -> Password:
    question = f"Password of {url.user}@{join_address(url.host, url.real_port)}"
    return Password(
        str(click.prompt(question, hide_input=True, default="", show_default=False)), file, is_new=True
    )


def ask_password_again(questioner: Questioner, name: str, url: ServerUrl, refused: Password) -> Password:
    """Return the answer to a question for another password, in place of one that the server refuses."""
    file = refused.file if refused.is_new and refused.file else _choose_new_file(questioner, name)
    return _ask_password(url, file)


def _get_password_file(questioner: Questioner, name: str, number: int = 1) -> Path:
    """Return a file for a password of the server `name`. Dots are in no server's name."""
    return questioner.config_file.parent / (f"{name}.{number}.password" if number > 1 else f"{name}.password")


def _choose_new_file(questioner: Questioner, name: str) -> Path:
    """Return a file for a new password: one that no other configuration names. Raises CommandError."""
    for number in count(1):
        file = _get_password_file(questioner, name, number)
        owner = _find_owner(file, questioner.config_file) if file.exists() else None
        if owner is None:
            break
        click.echo(f"{file} belongs to {owner} and stays as it is")
    questioner.require_replaceable(file)
    return file


def _find_owner(file: Path, written: Path) -> Path | None:
    """Return a configuration other than `written` in the folder of `file` that names the file, or may."""
    mention = re.compile(rf"(?<![\w.-]){re.escape(file.name)}(?![\w.-])")
    for each in sorted([*file.parent.glob("*.yaml"), *file.parent.glob("*.yml")]):
        if each.name == written.name or not each.is_file():
            continue
        try:
            text = each.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return each
        if mention.search(text):
            return each
    return None


def _read_password(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}", "correct or remove it") from error


def ask_choice(
    questioner: Questioner, listed: TableList, patterns: Sequence[str], database: str
) -> ChosenTables:
    """Return the choice of tables, asked for until it is valid. Raises CommandError."""
    if patterns or not questioner.asks or not listed.fit:
        return choose_tables(listed, patterns or [ALL], database)
    question = "Tables: all, or numbers and patterns such as 1-3, bank.acct, bank.a*"
    while True:
        try:
            return choose_tables(listed, questioner.ask_text(question, ALL).split(","), database)
        except CommandError as error:
            click.echo(f"rowlock: {error}", err=True)
