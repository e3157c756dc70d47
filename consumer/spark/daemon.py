"""Spark's Python daemon, with the modules of slots imported before it forks, so that slots start warm.

Spark loads this module by `spark.python.daemon.module`. No connection and no thread is created here, but
for a thread of Arrow's allocator, which can be forked (jemalloc).
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from contextlib import suppress

from consumer.spark.query import ignore_pandas_warning
from schemas.config.kinds.targets import TARGET_KINDS

PRELOADED = (
    "pyarrow", "pandas", "pyspark.worker", "orjson", "msgspec", "xxhash", "confluent_kafka",
    "consumer.slots.runner", "consumer.spark.slot_task",
)  # fmt: skip
"""Not gRPC, which must not be loaded before a fork."""


def import_worker_modules() -> None:
    """Import what every worker needs.

    A dialect with a driver that is not installed is skipped; its use will fail.
    """
    ignore_pandas_warning()
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
    from pyspark import daemon

    from consumer.logs import log_to_stderr

    log_to_stderr()  # a worker's warnings are JSON lines like all others
    import_worker_modules()
    # Exclude the daemon's permanent objects from the garbage collection of the slots.
    gc.collect()
    gc.freeze()
    manage: Callable[[], None] = daemon.manager  # it has types in some versions of PySpark
    manage()


if __name__ == "__main__":
    main()
