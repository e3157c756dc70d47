"""Many seeds at once: in processes where there are many, so that `make test-sim` uses all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: Below this the start of the processes costs more than they gain.
FEW = 500
PORTION = 20


def over_seeds(run: Callable[[int], T], seeds: range) -> Iterator[T]:
    """Yield `run(seed)` in the order of the seeds; the first error ends it. `run` is a function of a module
    under tests."""
    cores = len(os.sched_getaffinity(0))
    if len(seeds) < FEW or cores < 2:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield from pool.map(run, seeds, chunksize=PORTION)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
