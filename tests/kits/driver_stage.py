"""A stage for attempts' drivers: connections that note what they are asked for, and functions that answer
with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.attempt.drivers import batches, driver, threads
from consumer.attempt.drivers.batches import BatchDriver
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import Effect, Machine
from consumer.attempt.readers.reader import RecordSlice
from consumer.errors import ServerSilentError
from schemas.table.names import EXACT

SPEC: Any = SimpleNamespace(
    unit=SimpleNamespace(pipeline="p", topic="t"), epoch=7, was="before", place="d.t", source="b1", routes=(),
    debezium=None, scratch="", lanes=1,
)  # fmt: skip
U, X = SPEC.unit, object()
ANY: Any = X
Said = list[tuple[Any, ...]]


class Connection:
    """Records each call, and answers with the name of the call; `outcome`: what it returns for changes that
    it applies."""

    transactional_ddl = False
    column_names = EXACT
    table_names = EXACT

    def __init__(self, number: int, reported: Said) -> None:
        self._number, self._said = number, reported
        self.outcome: object = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def notified(*given: object, **named: object) -> Any:
            self._said.append((self._number, name, *given, *named.items()))
            return [name, "more"]

        return notified

    def yield_keys(self, *given: object) -> Iterator[list[int]]:
        self._said.append((self._number, "keys", *given))
        return iter([[1], [2]])

    def apply_changes(self, *given: object) -> object:
        self._said.append((self._number, "apply", *given))
        return self.outcome

    @contextmanager
    def begin_transaction(
        self, unit: object, guards: object, lock_wait_s: float | None = None
    ) -> Iterator[Any]:
        self._said.append((self._number, "transaction", unit, guards))
        yield Connection(-1, self._said)
        self._said.append((self._number, "commit"))


class Connections:
    def __init__(self) -> None:
        self.reported: Said = []
        self.only = Connection(0, self.reported)

    def get_connection(self, number: int) -> Any:
        return self.only if number == 0 else Connection(number, self.reported)

    def drop_if_broken(self, number: int) -> None:
        self.reported.append((number, "check"))

    def drop_connection(self, number: int) -> None:
        self.reported.append((number, "drop"))

    def report_silence(self, error: ServerSilentError) -> None:
        self.reported.append(("silence", str(error)))


class Stage:
    """Both drivers over connections that record their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections, self.expected = Connections(), True
        self.read: list[tuple[int, int]] = []
        self.tables: dict[Any, Any] = {"d.t": X, "d.other": X}
        inputs = AttemptInputs(
            [[(1, b"one")]], self._read, find_begin=lambda *given: ("begin", *given),
            find_snapshot=lambda after: ("snapshot", after), is_assigned=lambda: self.expected,  # type: ignore[arg-type,return-value]
            sharers=ANY,
        )  # fmt: skip
        self.threads = ThreadDriver(SPEC, self.connections, inputs, self.tables)
        self.batches = BatchDriver(SPEC, self.connections, inputs, self.tables)
        self.slept: list[float] = []
        for module in (threads, batches):
            monkeypatch.setattr(module.time, "sleep", self.slept.append)
        monkeypatch.setattr(driver, "resolve_target_place", lambda spec, source: ("s", source))
        for name in ("resolve_definition", "load_active_definition", "explain_changed_table"):
            monkeypatch.setattr(driver, name, _telling(name))
        monkeypatch.setattr(
            threads, "list_sharing_topics", lambda spec, units, source, _same: ("sharing", units, source)
        )

    def _read(self, start: int, upto: int) -> list[RecordSlice]:
        self.read.append((start, upto))
        return [[(start, b"read")]]

    def did(self, driver: str, effect: Effect[Any]) -> Any:
        def machine() -> Machine[Any]:
            return (yield effect)

        chosen: ThreadDriver | BatchDriver = getattr(self, driver)
        return chosen.run_machine(machine())


def _telling(name: str) -> Callable[..., Any]:
    """Answer with what a function is given; of a connection, its number."""
    return lambda *given, **named: (
        name,
        *(each._number if isinstance(each, Connection) else each for each in given if each is not SPEC),
        *named.items(),
    )
