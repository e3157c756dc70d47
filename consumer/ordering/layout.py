"""The lane of a row, and everything on which it depends.

A lane is a fixed 64-bit hash of (target table, folded target key), never Python's own salted `hash()`.
Everything that would send a key to another lane (lane count, hash, fold, routes, keys) is part of the
`Layout`, which is stored as JSON with the progress. After a change, a restart first finishes with the
stored layout (progress.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec
import xxhash

from consumer.errors import UnitStoppedError
from consumer.ordering.fold import FOLD_VERSION
from consumer.ordering.model import TargetTable

HASH = "xxh3_64"
SEED = 0x726F776C6F636B  # "rowlock"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of keys over lanes.

    `routes` and `keys` are fingerprints of the pipeline's routes and of the target tables' keys.
    """

    lanes: int = msgspec.field(name="lanes")
    hash: str = msgspec.field(name="hash", default=HASH)
    seed: int = msgspec.field(name="seed", default=SEED)
    fold: int = msgspec.field(name="fold", default=FOLD_VERSION)
    routes: str = msgspec.field(name="routes", default="")
    keys: str = msgspec.field(name="keys", default="")

    def encode(self) -> str:
        """Return the JSON stored in `LaneProgress.layout`; equal layouts give equal text."""
        return msgspec.json.encode(self, order="sorted").decode()

    @staticmethod
    def decode(text: str) -> Layout:
        """Parse a stored layout. Raises UnitStoppedError if it is not one."""
        try:
            return msgspec.json.decode(text, type=Layout)
        except msgspec.MsgspecError as error:
            raise UnitStoppedError(
                f"rowlock_progress has a lane layout ({text!r}) that this version cannot read ({error})",
                "run the version of rowlock that wrote it until it has caught up, then this one",
            ) from error

    @property
    def computable(self) -> bool:
        """True if this version of the code can compute the lane of a key in this layout."""
        return self.hash == HASH and self.fold == FOLD_VERSION

    def make_lane_hash(self, table: str) -> Callable[[bytes], int]:
        """Return the function folded key → lane (0 ≤ lane < lanes) of the target table "schema.name"."""
        lanes, seed, prefix = self.lanes, self.seed, table.encode() + b"\0"
        digest = xxhash.xxh3_64_intdigest

        def compute_lane(folded: bytes) -> int:
            return digest(prefix + folded, seed) % lanes

        return compute_lane if lanes > 1 else lambda _folded: 0


def compute_fingerprint(value: object) -> str:
    """Return a short, stable digest of any msgspec-encodable value (routes, keys)."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def compute_keys_fingerprint(tables: Iterable[TargetTable]) -> str:
    """Return the fingerprint of the keys and collations of `tables`, which determine a row's lane."""
    facts = [
        (
            f"{t.schema}.{t.name}",
            t.table.key.parts,
            [(c.name, c.type) for c in t.table.columns if c.name in t.table.key.columns],
        )
        for t in tables
    ]
    return compute_fingerprint(sorted(facts, key=lambda fact: fact[0]))
