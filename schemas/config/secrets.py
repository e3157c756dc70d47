"""Secrets that know where they were read from, for messages about them."""

from __future__ import annotations

from pydantic import SecretStr


class PlacedSecret(SecretStr):
    """A secret of a file or of the environment. It equals every other one with the same text."""

    def __init__(self, text: str, place: str) -> None:
        super().__init__(text)
        self.place = place
        """For people: "the file hq.password", "the environment variable HQ_PASSWORD"."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and self.get_secret_value() == other.get_secret_value()

    __hash__ = SecretStr.__hash__


_CORRECTED = "correct the user or the password"
"""Beginning of the remedy for a refused user or password."""


def add_secret_place(remedy: str, password: SecretStr | str) -> str:
    """Return the remedy for a refused user or password with the place of the password, if it is known."""
    if not isinstance(password, PlacedSecret):
        return remedy
    return remedy.replace(_CORRECTED, f"{_CORRECTED} (read from {password.place})", 1)
