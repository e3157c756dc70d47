"""A worker's threads on one core: together while work is handed over, free again in time and at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from consumer.one_core import RENEW_S, OneCore

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core only"
)


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    """A thread that waits, as a lane's does."""
    end = threading.Event()
    waiting = threading.Thread(target=end.wait, daemon=True)
    waiting.start()
    yield waiting
    end.set()
    waiting.join()


def _cores(thread: threading.Thread) -> tuple[set[int], set[int]]:
    assert thread.native_id is not None
    return os.sched_getaffinity(0), os.sched_getaffinity(thread.native_id)


def test_all_are_on_the_caller_s_core_until_released(thread: threading.Thread) -> None:
    allowed = os.sched_getaffinity(0)
    core = OneCore([thread])
    core.settle()
    ours, its = _cores(thread)
    assert len(ours) == 1
    assert its == ours
    core.release()
    assert _cores(thread) == (allowed, allowed)


def test_now_and_then_the_kernel_chooses_anew(thread: threading.Thread) -> None:
    now = 0.0
    core = OneCore([thread], now=lambda: now)
    sizes = []
    for now in (0.0, RENEW_S / 2, RENEW_S, RENEW_S, RENEW_S * 1.5, RENEW_S * 2):  # noqa: B007  # read by the lambda
        core.settle()
        sizes.append(len(_cores(thread)[1]))
    core.release()
    free = len(os.sched_getaffinity(0))
    assert sizes == [1, 1, free, 1, 1, free]


def test_a_narrower_choice_of_the_user_s_is_kept(thread: threading.Thread) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    os.sched_setaffinity(0, one)
    try:
        core = OneCore([thread])
        core.settle()
        assert _cores(thread) == (one, allowed)
        core.release()
        assert _cores(thread) == (one, allowed)
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_thread_that_has_ended_is_no_error(thread: threading.Thread) -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    core = OneCore([ended, threading.Thread(target=lambda: None), thread])
    core.settle()
    assert len(_cores(thread)[1]) == 1
    core.release()
