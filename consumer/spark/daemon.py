"""Spark's Python daemon, with two defects of PySpark 4.0.0 on Python 3.11 patched.

The stock worker spends three quarters of a near-empty micro-batch on them: (a) every task calls
`importlib.invalidate_caches()`, which re-reads pyspark.zip once per zip importer (14 of them, 130 ms);
(b) a 40 ms delayed ACK meets Nagle's algorithm on the socket from the JVM to the worker. Spark loads
this module by `spark.python.daemon.module`. With any other version of PySpark, or without TCP_QUICKACK,
it is `pyspark.daemon` with warm imports and nothing more.

The modules of the workers are imported before the fork, so that workers start warm. No connection and no
thread is created here.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import socket
import sys
import zipimport
from contextlib import suppress
from typing import Any

from schemas.config.kinds.targets import TARGET_KINDS

PATCHED_VERSION = "4.0.0"
PRELOADED = ("pyarrow", "orjson", "msgspec", "xxhash", "confluent_kafka", "consumer.spark.task")


class QuickAckReader(io.RawIOBase):
    """Reads from a socket's file and asks for immediate ACKs after every read, because the kernel
    forgets the option.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._socket = socket.socket(fileno=os.dup(raw.fileno()))

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self._raw.readinto(buffer)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count

    def close(self) -> None:
        if not self.closed:
            self._socket.close()
        super().close()


def patch_daemon(daemon: Any, version: str) -> bool:
    """Patch `pyspark.daemon`; return False if these patches were not made for its version."""
    if version != PATCHED_VERSION or sys.version_info < (3, 11) or not hasattr(socket, "TCP_QUICKACK"):
        return False
    worker_main = getattr(daemon, "worker_main", None)
    if worker_main is None:
        return False

    def run_worker(infile: Any, outfile: Any) -> Any:
        return worker_main(io.BufferedReader(QuickAckReader(infile.raw), 65536), outfile)

    # No module that a worker imports later comes from a zip file that changes while it runs.
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
    daemon.worker_main = run_worker
    return True


def import_worker_modules() -> None:
    """Import what every worker needs.

    A dialect with a driver that is not installed is skipped; its use will fail.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    for kind in TARGET_KINDS.values():
        for name in (kind.module, *kind.warm):
            with suppress(ImportError):
                importlib.import_module(name)


def main() -> None:
    """Run the daemon.

    `pyspark.daemon` itself reads the worker's module, which Spark passes as the first argument.
    """
    import pyspark
    from pyspark import daemon

    from consumer.logs import log_to_stderr

    log_to_stderr()  # a worker's warnings are JSON lines like all others
    import_worker_modules()
    patch_daemon(daemon, pyspark.__version__)
    # Exclude the daemon's permanent objects from the garbage collection that each worker runs after each
    # task.
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
