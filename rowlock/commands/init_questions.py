"""The questions of `rowlock init`: URLs, passwords, and tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from rowlock.errors import CommandError
from rowlock.inspect.first_config.config_text import name_variable
from rowlock.inspect.first_config.server_url import ServerUrl, Side, parse_server_url
from rowlock.inspect.first_config.table_choice import ALL, ChosenTables, TableList, choose_tables

USUAL_USER = "rowlock"
_FORMS: dict[Side, str] = {
    "source": "mysql://USER@HOST/DATABASE, also mariadb:// and oracle://",
    "target": "postgresql://USER@HOST/DATABASE, also mysql://, mariadb://, oracle:// and kafka://",
}


@dataclass(frozen=True, slots=True)
class Questioner:
    """Asks a person, or takes the defaults."""

    asks: bool
    folder: Path
    """The folder of the files to write."""
    replaces: bool
    """Whether existing files are replaced without a question."""

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


@dataclass(frozen=True, slots=True)
class Password:
    """The password of a server, and its place."""

    text: str = field(repr=False)
    file: Path | None
    """None: it is in the environment, or there is none."""
    is_new: bool
    """Whether the file has to be written."""


def ask_urls(questioner: Questioner, source: str | None, target: str | None) -> tuple[ServerUrl, ServerUrl]:
    """Return the URLs of both sides, with the users to connect as. Raises CommandError."""
    given: dict[Side, str | None] = {"source": source, "target": target}
    urls = []
    for side, text in given.items():
        question = f"URL of the {side} ({_FORMS[side]})"
        url = parse_server_url(text or questioner.ask_text(question, option=f"{side.upper()}_URL"), side)
        if url.has_login and not url.user:
            url = replace(url, user=questioner.ask_text(f"User of the {side}", USUAL_USER))
        urls.append(url)
    return urls[0], urls[1]


def find_password(questioner: Questioner, name: str, url: ServerUrl) -> Password:
    """Return the password of a server: of its URL, its file, its variable, or the answer to a question.

    Raises CommandError.
    """
    if not url.has_login:
        return Password("", None, is_new=False)
    file, variable = questioner.folder / f"{name}.password", name_variable(name)
    stored = _read_password(file) if file.exists() else None
    if url.password not in (None, stored):
        questioner.require_replaceable(file)
        return Password(str(url.password), file, is_new=True)
    if stored is not None:
        return Password(stored, file, is_new=False)
    if variable in os.environ:
        return Password(os.environ[variable], None, is_new=False)
    if not questioner.asks:
        raise CommandError(
            f"no password is known for user {url.user} of {name}", f"write it into {file}, or set {variable}"
        )
    question = f"Password of {url.user} at {url.host}"
    return Password(
        str(click.prompt(question, hide_input=True, default="", show_default=False)), file, is_new=True
    )


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
