"""Serves the application from a thread, because the coordinator's own threads are not asyncio's."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from coordinator.server.listening import open_listening_socket
from schemas.config.addresses import join_address, split_address

REST_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files (PEM) for HTTPS."""

    cert: Path
    key: Path


class RestServer:
    """A REST server on "host:port" (port 0: a free one). `start` raises OSError if that is not possible.
    `at`: an open listening socket.
    """

    def __init__(
        self, app: ASGIApp, listen: str, ssl: Certificate | None = None, at: socket.socket | None = None
    ) -> None:
        self._listen = listen
        self._at = at
        self._config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",  # errors are logged by rest.problems
            access_log=False,
            lifespan="off",
            server_header=False,
            ssl_certfile=ssl.cert if ssl else None,
            ssl_keyfile=ssl.key if ssl else None,
            timeout_graceful_shutdown=int(REST_STOP_TIMEOUT_S),
        )
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self.address = listen

    def start(self) -> str:
        """Listen and serve, and return the address with the actual port."""
        host, _ = split_address(self._listen)
        listening = self._at or open_listening_socket(self._listen)
        self._config.load()  # a bad certificate raises here, not in a thread
        self.address = join_address(host, listening.getsockname()[1])
        server = uvicorn.Server(self._config)
        self._socket, self._server = listening, server
        serve = partial(server.run, sockets=[listening])
        self._thread = threading.Thread(target=serve, name="rest", daemon=True)
        self._thread.start()
        return self.address

    def close(self) -> None:
        """Finish the current requests, then end."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(REST_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(REST_STOP_TIMEOUT_S)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._server = None
