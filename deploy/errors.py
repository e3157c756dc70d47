"""The exception of the embedded services."""

from __future__ import annotations


class EmbeddedError(Exception):
    """A condition outside rowlock keeps a service from running.

    `blame` names what is at fault, `seen` what was observed, `remedy` what the user can do about it.
    """

    def __init__(self, blame: str, seen: str, remedy: str) -> None:
        super().__init__(f"{blame}: {seen}\n  → {remedy}")
        self.blame = blame
        self.seen = seen
        self.remedy = remedy


def build_closed_error(kind: str) -> EmbeddedError:
    """Return the error of a service that is started after it was closed."""
    return EmbeddedError(kind, "it has been closed", "make a new one")
