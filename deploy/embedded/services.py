"""The embedded services, and sets of them that start and end together."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from types import FrameType
from typing import Self

from deploy.embedded.kafka import Kafka
from deploy.embedded.mariadb import MariaDB
from deploy.embedded.mysql import MySQL
from deploy.embedded.postgres import PostgreSQL
from deploy.embedded.service import Service
from deploy.errors import EmbeddedError

__all__ = [
    "EmbeddedError",
    "Kafka",
    "MariaDB",
    "MySQL",
    "PostgreSQL",
    "Service",
    "ServiceSet",
    "combine_services",
    "terminate_cleanly",
]


class ServiceSet:
    """Services that start in parallel. If one cannot start, or on Ctrl-C, the others are ended, too."""

    def __init__(self, *services: Service) -> None:
        self.services = services

    def start(self) -> Self:
        for kind in dict.fromkeys(type(each) for each in self.services):
            kind.fetch()  # one after the other, because each shows its progress
        pool = ThreadPoolExecutor(max_workers=max(1, len(self.services)))
        try:
            _await_all([pool.submit(each.start) for each in self.services])
        except BaseException:
            self.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return self

    def close(self) -> None:
        """End all services at once, including those that are still starting."""
        threads = [threading.Thread(target=each.close) for each in self.services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def combine_services(*services: Service) -> ServiceSet:
    """Return a set: `with combine_services(Kafka(), MariaDB()):` runs both inside the block."""
    return ServiceSet(*services)


def _await_all(futures: list[Future[Service]]) -> None:
    """Wait for all futures; raise the first failure at once."""
    for future in as_completed(futures):
        future.result()


@contextmanager
def terminate_cleanly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an ordinary exit, so that `with` blocks end their services themselves."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
