"""Addresses of databases and of Kafka as URLs: `mysql://USER:PASSWORD@HOST:PORT/DATABASE`. Pure.

User, password and database may be percent-encoded. No message repeats a URL, because it may have a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote_to_bytes

from rowlock.errors import CommandError
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import TARGET_KINDS

Side = Literal["source", "target"]
SCHEMES: dict[Side, dict[str, str]] = {
    "source": {"mysql": "mysql", "mariadb": "mariadb", "oracle": "oracle"},
    "target": {
        "postgresql": "postgres",
        "postgres": "postgres",
        "mysql": "mysql",
        "mariadb": "mariadb",
        "oracle": "oracle",
        "kafka": "kafka",
    },
}
"""Scheme of a URL → `type` in the configuration."""
KAFKA_PORT = 9092
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?:\[(?P<v6>[^\[\]/?#@]+)\]|(?P<host>[^:/?#\[\]@,]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/(?P<database>[^/?#]*))?"
)
_FORM = "scheme://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The parts of a URL, decoded."""

    kind: str
    """`type` in the configuration."""
    host: str
    port: int | None = None
    """None: the usual port of the kind."""
    user: str = ""
    """"": the URL names none."""
    password: str | None = field(default=None, repr=False)
    """None: the URL has none; it may also have an empty one."""
    database: str = ""
    """The database; for Oracle the service, for Kafka the first part of the topics' names."""

    @property
    def usual_port(self) -> int:
        kind = SOURCE_KINDS.get(self.kind) or TARGET_KINDS[self.kind]
        return kind.port or KAFKA_PORT

    @property
    def real_port(self) -> int:
        return self.port or self.usual_port

    @property
    def has_login(self) -> bool:
        """Return whether a user and a password are parts of the URL. Those of Kafka are client settings."""
        return self.kind != "kafka"


def parse_server_url(text: str, side: Side) -> ServerUrl:
    """Return the parts of the URL of a source or target. Raises CommandError."""
    found = _URL.fullmatch(text)
    if found is None:
        raise CommandError(
            f"the URL of the {side} is not of the form {_FORM}",
            "write special characters in user, password and database percent-encoded (@ as %40, / as %2F, "
            "# as %23, ? as %3F); options after ? are not read",
        )
    scheme, schemes = found["scheme"].lower(), SCHEMES[side]
    if scheme not in schemes:
        raise CommandError(
            f"{scheme} is no kind of {side}",
            f"begin its URL with one of {', '.join(f'{each}://' for each in schemes)}",
        )
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise CommandError(f"the URL of the {side} has the port {port}", "write a port from 1 to 65535")
    try:
        url = ServerUrl(
            schemes[scheme],
            _decode_part(found["v6"] or found["host"]),
            port,
            _decode_part(found["user"] or ""),
            None if found["password"] is None else _decode_part(found["password"]),
            _decode_part(found["database"] or ""),
        )
    except UnicodeError:
        raise CommandError(f"the URL of the {side} is not UTF-8 text", "encode its bytes as UTF-8") from None
    _require_parts(url, side, scheme)
    return url


def _decode_part(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8")


def _require_parts(url: ServerUrl, side: Side, scheme: str) -> None:
    if not url.database and (url.kind == "oracle" or (side == "target" and url.has_login)):
        what = "service" if url.kind == "oracle" else "database"
        raise CommandError(
            f"the URL of the {side} names no {what}", f"write {scheme}://USER@HOST/{what.upper()}"
        )
    if not url.has_login and (url.user or url.password is not None):
        raise CommandError(
            "the URL of the target has a user, and Kafka's are client settings",
            "leave it out, and write `options` into the target's section afterwards (sasl.username, "
            "sasl.password_file)",
        )
    if url.password is not None and ("\n" in url.password or "\r" in url.password):
        raise CommandError(
            f"the password of the {side} has a line break, which a password file cannot have",
            "change the password",
        )
