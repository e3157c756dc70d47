"""A process whose Java process is gone applies nothing any more: it ends, so that another one is started."""

from __future__ import annotations

import subprocess
import sys
import threading

from consumer.spark.query import JAVA_ENDED, end_with_java

PATIENCE = 120


def java() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_the_end_of_java_is_the_end_of_the_process() -> None:
    codes: list[int] = []
    with java() as process:
        thread = end_with_java(process, threading.Event(), codes.append)
        process.kill()
        thread.join(PATIENCE)
    assert codes == [JAVA_ENDED]


def test_a_process_that_stops_is_not_ended_in_the_middle() -> None:
    codes: list[int] = []
    stop = threading.Event()
    with java() as process:
        thread = end_with_java(process, stop, codes.append)
        stop.set()
        process.kill()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert codes == []
