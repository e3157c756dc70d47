"""Accounts of MySQL and MariaDB in the statements that administrators run. Pure."""

from __future__ import annotations

ANY_HOST = "%"


def format_account(user: str, host: str = ANY_HOST) -> str:
    """Return the account as GRANT names it.

    Not in backticks, which a shell takes as a command within `mariadb -e "…"`.
    """
    return f"{_quote_text(user)}@{_quote_text(host)}"


def _quote_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
