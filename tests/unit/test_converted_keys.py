"""The source's keys as keys of the target, which may have other names, another order and added columns."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.tables.definition import ActiveDefinition
from schemas.table.model import Key


class Named:
    """What `convert_keys` uses of a definition."""

    def __init__(self, source: list[str], target: list[str], added: dict[str, str]) -> None:
        self.source_key = source
        self.target: Any = self
        self.table: Any = self
        self.key: Any = self
        self.routed: Any = self
        self.columns = tuple(target)
        self.added = tuple(added.items())


@pytest.mark.parametrize(
    ("source", "target", "added", "expected"),
    [
        (["a", "b"], ["a", "b"], {}, [(1, "x"), (2, "y")]),
        (["a", "b"], ["b", "a"], {}, [("x", 1), ("y", 2)]),
        (["a", "b"], ["branch", "a", "b"], {"branch": "b1"}, [("b1", 1, "x"), ("b1", 2, "y")]),
        (["a", "b"], ["b", "n", "a", "m"], {"n": "1", "m": "2", "o": "3"},
         [("x", "1", 1, "2"), ("y", "1", 2, "2")]),
    ],
)  # fmt: skip
def test_keys_are_those_of_the_target(
    source: list[str], target: list[str], added: dict[str, str], expected: list[Key]
) -> None:
    keys: list[Key] = [(1, "x"), (2, "y")]
    named: Any = Named(source, target, added)
    assert ActiveDefinition.convert_keys(named, keys) == expected
    assert ActiveDefinition.convert_keys(named, keys[:1]) == expected[:1]
    assert list(ActiveDefinition.convert_keys(named, [])) == []
