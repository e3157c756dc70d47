"""The streams between the apply process and the slots in Spark's tasks: one gRPC stream for each slot.

Slots trust the process's certificate, and prove themselves by a token that is read from a file on their
host. Both sides check the connection all the time; its loss ends the stream on both sides. Methods take and
return bytes: `messages` encodes them.
"""

from __future__ import annotations

import hmac
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import structlog

from consumer.errors import SparkStartError
from consumer.slots.certificate import NAME, SlotCertificate
from consumer.slots.faults import fault_ends_process
from consumer.slots.messages import (
    CloseSlot,
    SlotAnswer,
    SlotCommand,
    SlotOpened,
    decode_slot_answer,
    decode_slot_command,
    describe_slot,
    encode_slot_message,
)
from consumer.slots.pool import SlotPool
from consumer.slots.runner import SlotRunner
from schemas.io.grpc_settings import DaemonThreadExecutor, Keepalive

log = structlog.get_logger(__name__)

METHOD = "/rowlock.slots.v1.Slots/Serve"
TOKEN = "rowlock-slot-token"  # noqa: S105  # a name
KEEPALIVE = Keepalive(every=1.0, timeout=2.0)
"""A stream is lost three seconds after a cut: the units of a lost executor are applied elsewhere before five
have passed."""


class _Outbox:
    """Messages that wait to be written on a stream."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[SlotCommand | SlotAnswer | None] = queue.SimpleQueue()

    def put(self, message: SlotCommand | SlotAnswer) -> None:
        self._messages.put(message)

    def end(self) -> None:
        """End the stream after what waits."""
        self._messages.put(None)

    def yield_messages(self) -> Iterator[bytes]:
        while (message := self._messages.get()) is not None:
            yield encode_slot_message(message)


class _StreamLink:
    """The link to a slot that has opened a stream."""

    def __init__(self) -> None:
        self.outbox = _Outbox()

    def send_command(self, command: SlotCommand) -> None:
        self.outbox.put(command)

    def end_stream(self) -> None:
        self.outbox.end()


class SlotServer:
    """The end of the streams in the apply process. `token`: every slot must know it."""

    def __init__(self, pool: SlotPool, certificate: SlotCertificate, token: str, listen: str = "127.0.0.1:0"):
        """Raises SparkStartError if this process cannot listen on `listen`."""
        self._pool, self._token = pool, token
        self._server: grpc.Server = grpc.server(
            DaemonThreadExecutor("slot stream"), options=KEEPALIVE.build_server_options()
        )
        self._server.add_generic_rpc_handlers((_Handler(self._serve_stream),))
        credentials = grpc.ssl_server_credentials([(certificate.key, certificate.pem)])
        try:
            self.port = int(self._server.add_secure_port(listen, credentials))
        except RuntimeError as error:
            raise SparkStartError(
                f"slots cannot be served at {listen}: {error}",
                "name an address of this machine as spark.driver.host, and a free port as "
                "spark.driver.channel_port",
            ) from error

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.stop(0.5).wait()

    def _serve_stream(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Write commands until the stream ends, in gRPC's thread; answers are read in another one."""
        given = dict(context.invocation_metadata()).get(TOKEN, "")
        if not given or not hmac.compare_digest(str(given).encode(), self._token.encode()):
            log.warning("slot refused: it does not know the token", peer=context.peer())
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the slot's token is not that of this process")
        try:
            opened = decode_slot_answer(next(frames))
        except (StopIteration, msgspec.DecodeError, grpc.RpcError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a stream begins with SlotOpened: {error}")
            return
        if not isinstance(opened, SlotOpened):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with SlotOpened")
            return
        link = _StreamLink()
        with fault_ends_process("slot stream"):  # gRPC would log an error, and the slot's units stand still
            number = self._pool.open_slot(link, opened)
        if not context.add_callback(lambda: self._lose_slot(number)):
            self._lose_slot(number)
        threading.Thread(
            target=self._read_answers, args=(number, frames), name=f"slot {number}", daemon=True
        ).start()
        yield from link.outbox.yield_messages()

    def _read_answers(self, number: int, frames: Iterator[bytes]) -> None:
        with fault_ends_process("slot stream"):
            try:
                for raw in frames:
                    self._pool.take_answer(number, decode_slot_answer(raw))
            except grpc.RpcError:
                pass  # the connection is lost, which is found out below
            except msgspec.DecodeError as error:
                log.error("message of a slot not readable", slot=number, error=str(error))
            self._pool.lose_slot(number)

    def _lose_slot(self, number: int) -> None:
        with fault_ends_process("slot stream"):
            self._pool.lose_slot(number)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    def __init__(self, serve: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(serve)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._handler if details.method == METHOD else None


def serve_slot(
    number: int, address: str, certificate: bytes, token: str, scratch: Path | None = None
) -> None:
    """Run the slot `number` until the apply process closes it. `scratch`: see SlotRunner.

    Raises grpc.RpcError if the stream is refused or lost. The slot's attempts have ended then.
    """
    options = [*KEEPALIVE.build_client_options(), ("grpc.ssl_target_name_override", NAME)]
    outbox = _Outbox()
    outbox.put(describe_slot(number))
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate), options) as channel:
        call = channel.stream_stream(METHOD)(outbox.yield_messages(), metadata=((TOKEN, token),))
        runner = SlotRunner(outbox.put, f"slot {number}", scratch)
        try:
            _handle_commands(runner, call)
        finally:
            with fault_ends_process(f"slot {number}"):
                runner.close()
            outbox.end()
        for _ in call:  # until the apply process has read the last message
            pass


def _handle_commands(runner: SlotRunner, frames: Iterable[bytes]) -> None:
    for raw in frames:
        command = decode_slot_command(raw)
        if isinstance(command, CloseSlot):
            return
        runner.handle_command(command)
