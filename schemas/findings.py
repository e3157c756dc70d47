"""What `check` and the preflights of capture find: a list of these is printed, and an error among them refuses the start."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """`place`: what it is about ("source branch1", "source branch1, table bank.acct"); `remedy`: what to do, a statement if one fixes it."""

    level: Literal["error", "warning"]
    place: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.message}. {self.remedy}" if self.remedy else f"{self.place}: {self.message}"
        )
