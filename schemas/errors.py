"""Errors of the shared data model: each says who is to blame, what was seen and what to do."""

from __future__ import annotations


class SchemaError(Exception):
    """Root of the errors of this package."""


class EnvelopeError(SchemaError):
    """A Kafka record is not a readable envelope: malformed, or written by a newer major version."""


class NoKeyError(SchemaError):
    """A table has neither a primary key nor a unique index over NOT NULL columns: its rows have no identity."""


class ExpressionIndexError(SchemaError):
    """A unique index over expressions: its values are in no row image, so its changes cannot be ordered."""


class UnsupportedTypeError(SchemaError):
    """A column or table type that rowlock cannot carry, or that the target has no lossless type for."""


class TableNotFoundError(SchemaError):
    """The table does not exist, or this user may not see it."""


class ServerConnectError(SchemaError):
    """A database server cannot be reached or refuses the log-in. `transient`: trying again later may help."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


class UnsupportedServerError(ServerConnectError):
    """A database server is of a version that rowlock does not support. Never transient."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class ValueRefusedError(SchemaError):
    """The target's type cannot hold a value. `column`: which; `reason`: why (without the value, which may be secret)."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column
        self.reason = reason
