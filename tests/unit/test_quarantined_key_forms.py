"""A quarantined key that the source has in another form by now: the target holds both forms equal and shows
one of them, as a collation without case, a number or a uuid does."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.errors import RefusedError
from schemas.table.model import Key
from tests.kits.apply import FakeSource, Values
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import STOP, CopyBench, benched, copy_of
from tests.stands.fake_target import FakeSession

FORMS = pytest.mark.parametrize(("old", "new"), [("7", "07"), ("07", "7")])
COPIES = pytest.mark.parametrize("keys", [False, True], ids=["copy", "key sweep"])


class RowsByNumber(dict[Key, Any]):
    """The target's rows, which it shows by the number in their keys."""

    def __setitem__(self, key: Key, row: Any) -> None:
        super().__setitem__(show(key), row)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(show(key))

    def get(self, key: Key, default: Any = None) -> Any:
        return super().get(show(key), default)

    def pop(self, key: Key, default: Any = None) -> Any:
        return super().pop(show(key), default)


def show(key: Any) -> Key:
    return (str(int(key[0])),)


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> tuple[CopyBench, FakeSource]:
    """A unit whose target holds the keys '7' and '07' equal and refuses the owner "poison"."""
    bench, source = benched(text=True)
    bench.target.state.rows["public.acct"] = RowsByNumber()
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    fetch = FakeSession.fetch_keys
    monkeypatch.setattr(
        FakeSession, "fetch_keys", lambda *arguments: [show(key) for key in fetch(*arguments)]
    )
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(1, 4)])
    return bench, source


def row(source: FakeSource, key: str, version: int, owner: str = "o") -> Values:
    return {**source.row(7, "7@x", version), "id": key, "owner": owner}


@FORMS
@COPIES
def test_the_row_that_the_source_has_stays_and_the_old_entry_leaves(
    unit: tuple[CopyBench, FakeSource], old: str, new: str, keys: bool
) -> None:
    bench, source = unit
    bench.write([source.put(row(source, old, 1, "poison"))])
    assert bench.apply().held == 1
    if keys:
        bench.write([source.remove_rows(7), source.put(row(source, new, 2))])
    else:
        bench.write([source.event("m", stop=STOP)])
        assert bench.apply().state == "stopped"
        bench.take_over()
    source.rows[7] = row(source, new, 2)  # a statement changed the key unseen
    start = len(bench.topic)
    copy_of(source, bench.topic, keys=keys).all()
    assert bench.apply(start).state == "ok"
    assert bench.apply(len(bench.topic)).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert bench.target.state.held == {}
