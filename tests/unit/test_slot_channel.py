"""The streams of slots, over loopback: who is let in, what passes, and what a loss comes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from consumer.attempt.reports import LaneFigures, Report
from consumer.errors import SparkStartError
from consumer.slots import channel
from consumer.slots.certificate import SlotCertificate, make_certificate
from consumer.slots.channel import SlotServer, serve_slot
from consumer.slots.faults import FAULT_EXIT_CODE
from consumer.slots.messages import (
    CloseSlot,
    ReleaseUnit,
    ServeUnit,
    SlotAnswer,
    SlotCommand,
    SlotOpened,
    SlotReports,
    UnitReleased,
    UsePipeline,
)
from consumer.slots.pool import SlotLink

LONG_S = 60.0
"""A hang's end."""
SERVE = ServeUnit("r", "t", "s", 3, "id", 70_001, 41, 99, b"\x00t", "why", 7, trial=True)
REPORT = Report(
    "t", "ok", 3, 9, applied=1, dropped=2, held=3, displaced=4, commit_ts_ms=5, position=(0, 1, 2, 3),
    message="漢", lanes=LaneFigures(1, 2, 3, 4, 5, 6), left=5,
)  # fmt: skip


class Pool:
    """Notes what arrives."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.opened: list[tuple[SlotLink, SlotOpened]] = []
        self.answers: list[tuple[int, SlotAnswer]] = []
        self.lost: list[int] = []

    def open_slot(self, link: SlotLink, opened: SlotOpened) -> int:
        with self.changed:
            self.opened.append((link, opened))
            self.changed.notify_all()
            return len(self.opened)

    def lose_slot(self, number: int) -> None:
        with self.changed:
            if number not in self.lost:
                self.lost.append(number)
                self.opened[number - 1][0].end_stream()
            self.changed.notify_all()

    def take_answer(self, number: int, answer: SlotAnswer) -> None:
        with self.changed:
            self.answers.append((number, answer))
            self.changed.notify_all()

    def wait_until(self, ready: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(ready, LONG_S)


class Runner:
    """Notes commands, and answers each ReleaseUnit."""

    made: list[Runner]

    def __init__(self, answer: Callable[[SlotAnswer], None], _name: str, _scratch: Path | None) -> None:
        self.answer, self.commands, self.closed = answer, list[SlotCommand](), threading.Event()
        Runner.made.append(self)

    def handle_command(self, command: SlotCommand) -> None:
        self.commands.append(command)
        if isinstance(command, ReleaseUnit):
            self.answer(SlotReports(command.run, [REPORT]))
            self.answer(UnitReleased(command.run, command.topic, 3, 9, 10))

    def close(self) -> None:
        self.answer(UnitReleased("r", "last", 1, 1, 2))
        self.closed.set()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    Runner.made = []
    monkeypatch.setattr(channel, "SlotRunner", Runner)
    return Pool()


@pytest.fixture
def certificate() -> SlotCertificate:
    return make_certificate()


@pytest.fixture
def server(pool: Pool, certificate: SlotCertificate) -> Iterator[SlotServer]:
    made = SlotServer(pool, certificate, "secret")  # type: ignore[arg-type]
    made.start()
    yield made
    made.close()


class Served(threading.Thread):
    """A slot in a thread; `error`: with which it ended."""

    def __init__(
        self, server: SlotServer, certificate: SlotCertificate, token: str = "secret", number: int = 1
    ):
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._arguments = number, f"127.0.0.1:{server.port}", certificate.pem, token
        self.start()

    def run(self) -> None:
        try:
            serve_slot(*self._arguments)
        except BaseException as error:  # noqa: BLE001  # what the test looks at
            self.error = error


def test_messages_pass_both_ways_in_order_until_the_slot_is_closed(
    pool: Pool, server: SlotServer, certificate: SlotCertificate
) -> None:
    slot = Served(server, certificate, number=4)
    pool.wait_until(lambda: pool.opened and Runner.made)
    link, opened = pool.opened[0]
    assert opened.number == 4
    sent: list[SlotCommand] = [UsePipeline("r", b"\x80settings"), SERVE, ReleaseUnit("r", "t")]
    for command in (*sent, CloseSlot()):
        link.send_command(command)
    slot.join(LONG_S)
    assert slot.error is None
    pool.wait_until(lambda: pool.lost)
    (runner,) = Runner.made
    assert runner.commands == sent
    assert runner.closed.is_set()
    assert pool.answers == [
        (1, SlotReports("r", [REPORT])),
        (1, UnitReleased("r", "t", 3, 9, 10)),
        (1, UnitReleased("r", "last", 1, 1, 2)),
    ], "also what the end of the slot answers"


@pytest.mark.parametrize("token", ["", "guess", "sécret"])
def test_a_slot_without_the_token_is_refused(
    pool: Pool, server: SlotServer, certificate: SlotCertificate, token: str
) -> None:
    with capture_logs() as logs:
        slot = Served(server, certificate, token)
        slot.join(LONG_S)
    assert slot.error is not None
    assert not pool.opened
    assert token == "sécret" or [line["event"] for line in logs] == [  # gRPC refuses to send it
        "slot refused: it does not know the token"
    ]


def test_a_slot_without_a_token_is_refused_whatever_that_of_the_server_is(
    pool: Pool, certificate: SlotCertificate
) -> None:
    server = SlotServer(pool, certificate, "")  # type: ignore[arg-type]
    server.start()
    try:
        slot = Served(server, certificate, "")
        slot.join(LONG_S)
    finally:
        server.close()
    assert isinstance(slot.error, grpc.RpcError)
    assert slot.error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert not pool.opened


@pytest.mark.parametrize("host", ["192.0.2.1", "127.0.0.1"], ids=["not of this machine", "port in use"])
def test_an_address_that_cannot_be_listened_on_is_named_with_the_remedy(
    pool: Pool, certificate: SlotCertificate, server: SlotServer, host: str
) -> None:
    with pytest.raises(SparkStartError) as refused:
        SlotServer(pool, certificate, "secret", f"{host}:{server.port}")  # type: ignore[arg-type]
    assert refused.value.problem.what.startswith(f"slots cannot be served at {host}:{server.port}: ")
    assert "spark.driver.host" in refused.value.problem.action
    assert "spark.driver.channel_port" in refused.value.problem.action


def test_a_slot_trusts_the_certificate_of_its_process_alone(pool: Pool, server: SlotServer) -> None:
    slot = Served(server, make_certificate())
    slot.join(LONG_S)
    assert isinstance(slot.error, grpc.RpcError)
    assert not pool.opened, "so nobody else gets the token"


def test_a_server_that_goes_away_ends_the_slot_with_an_error(
    pool: Pool, server: SlotServer, certificate: SlotCertificate
) -> None:
    slot = Served(server, certificate)
    pool.wait_until(lambda: pool.opened and Runner.made)
    server.close()
    slot.join(LONG_S)
    assert isinstance(slot.error, grpc.RpcError)
    assert Runner.made[0].closed.is_set(), "its attempts have ended"
    pool.wait_until(lambda: pool.lost == [1])


@pytest.mark.parametrize("raw", [b"", b"\xff", b"\x81\xa4type\xa5other"])
def test_what_is_no_slot_is_refused(
    pool: Pool, server: SlotServer, certificate: SlotCertificate, raw: bytes
) -> None:
    options = [*channel.KEEPALIVE.build_client_options(), ("grpc.ssl_target_name_override", channel.NAME)]
    credentials = grpc.ssl_channel_credentials(certificate.pem)
    with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials, options) as stranger:
        call: Any = stranger.stream_stream(channel.METHOD)(iter([raw]), metadata=((channel.TOKEN, "secret"),))
        with pytest.raises(grpc.RpcError):
            list(call)
    assert not pool.opened


def test_a_message_that_cannot_be_read_loses_the_slot(
    pool: Pool, server: SlotServer, certificate: SlotCertificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Served(server, certificate)
    pool.wait_until(lambda: pool.opened and Runner.made)
    monkeypatch.setattr(channel, "encode_slot_message", lambda _message: b"\xff")
    with capture_logs():
        Runner.made[0].answer(UnitReleased("r", "t", 1, 1, 1))
        pool.wait_until(lambda: pool.lost == [1])
    slot.join(LONG_S)


@pytest.mark.parametrize("method", ["open_slot", "take_answer", "lose_slot"])
def test_an_error_of_the_program_in_a_stream_ends_the_process(
    pool: Pool,
    server: SlotServer,
    certificate: SlotCertificate,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    """Otherwise the stream would stay open without a reader, and the slot's units would stand still."""
    codes = list[int]()
    ended = threading.Event()

    def end_process(code: int) -> None:
        codes.append(code)
        ended.set()

    def fail(*_arguments: object) -> int:
        raise KeyError(method)

    monkeypatch.setattr("os._exit", end_process)
    monkeypatch.setattr(pool, method, fail)
    with capture_logs() as logs:
        slot = Served(server, certificate)
        if method != "open_slot":
            pool.wait_until(lambda: pool.opened and Runner.made)
            Runner.made[0].answer(UnitReleased("r", "t", 1, 1, 1))
            pool.opened[0][0].send_command(CloseSlot())
        assert ended.wait(LONG_S)
    server.close()
    slot.join(LONG_S)
    assert set(codes) == {FAULT_EXIT_CODE}
    assert any(line["event"] == "process ends: internal error" for line in logs)


def test_settings_are_not_shown_in_a_traceback() -> None:
    assert "secret" not in repr(UsePipeline("r", b"secret"))
    assert "PRIVATE" not in repr(make_certificate())
