"""What `check` and the preflights of capture find: a list of these is printed, and an error among them refuses the start."""

from __future__ import annotations

from typing import Literal

import msgspec

#: The remedy for what cannot be gone on from: behind a colon, for `check` takes the last one as the place of the remedy.
START_OVER = "start over (docs/how-to/start-over.md)"


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
