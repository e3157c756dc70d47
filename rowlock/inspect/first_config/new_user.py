"""The statements that create rowlock's user on a server, for an administrator. Pure.

A server that refuses a log-in does not show whether the user exists.
"""

from __future__ import annotations

from rowlock.inspect.first_config.server_url import ServerUrl, Side
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.io.mysql_accounts import format_account

PASSWORD_PLACEHOLDER = "PASSWORD"  # noqa: S105 - the word that the administrator replaces


def list_new_user_statements(side: Side, url: ServerUrl) -> list[str]:
    """Return the statements that create the URL's user with the rights that a first run needs on its server;
    empty for a kind without users.
    """
    kind = SOURCE_KINDS[url.kind] if side == "source" else TARGET_KINDS[url.kind]

    def quote(name: str) -> str:
        return kind.quote + name.replace(kind.quote, kind.quote * 2) + kind.quote

    database = quote(url.database) if url.database else ""
    words = {
        "user": quote(url.user),
        "account": format_account(url.user),
        "USER": quote(url.user.upper() if url.user == url.user.lower() else url.user),
        "database": database or "DATABASE",
        "tables": f"{database or '*'}.*",
        "password": PASSWORD_PLACEHOLDER,
    }
    return [each.format_map(words) for each in kind.new_user]
