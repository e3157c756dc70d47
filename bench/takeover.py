"""How long no coordinator leads after a kill -9 of the leader: real Kafka, two real `rowlock coordinator`
processes, default settings.

A figure is the time from the kill until the other coordinator reports over REST that it leads (`GET
/v1/leader`). The killed one is started again each time, and the next kill is of the new leader. The kills are
not in step with the leader's beats.

python -m bench.takeover [--times 5]
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from bench.kit import wait
from deploy.embedded.services import Kafka, combine_services
from tests.kits.cluster import Addresses, Processes
from tests.kits.running import write_config

TIMES = 5
GOAL_S = 5.0
SETTLE_S = 2.0
OUT_OF_STEP_S = 0.37
_NOWHERE = {"type": "mariadb", "host": "127.0.0.1", "port": 1, "user": "u", "password": ""}


class Pair:
    """Two coordinators, seen over REST."""

    def __init__(self, processes: Processes, client: httpx.Client) -> None:
        self._processes, self._client = processes, client

    def leader(self, asked: int) -> dict[str, Any] | None:
        """Return whom coordinator `asked` takes for the leader; None: nobody, or it does not answer."""
        with contextlib.suppress(httpx.TransportError):
            answer = self._client.get(f"http://{self._processes.addresses.rest[asked]}/v1/leader")
            return dict(answer.json()) if answer.is_success else None
        return None

    def leads(self, number: int) -> bool:
        found = self.leader(number)
        return found is not None and bool(found["am_i"])

    def take_over(self, out_of_step: float) -> float:
        """Kill the leader once the other one follows; return the seconds until that one leads. Both run again
        then."""
        leader = self._settled(SETTLE_S + out_of_step)
        other = 1 - leader
        killed = time.monotonic()
        self._processes.kill(f"c{leader}")
        wait(lambda: self.leads(other), "the other one leads", 60)
        seconds = time.monotonic() - killed
        self._processes.coordinator(leader)
        return seconds

    def _settled(self, seconds: float) -> int:
        """Return the leader once it leads and the other one follows, and still does so after `seconds`.

        Two that start together may both claim, one after the other: the first leads for a moment only.
        """
        before: int | None = None
        while (now := wait(self._alone, "one leads and the other one follows", 60)[0]) != before:
            before = now
            time.sleep(seconds)
        return int(now)

    def _alone(self) -> list[int]:
        """Return the leader if the other one knows that it follows."""
        reported = [self.leader(number) for number in range(2)]
        found = [number for number, leader in enumerate(reported) if leader and leader["am_i"]]
        return found if all(reported) and len(found) == 1 else []


@contextlib.contextmanager
def pairs(folder: Path) -> Iterator[Pair]:
    """Run two coordinators over a catalogue with one unit and no agent."""
    with combine_services(kafka := Kafka()), httpx.Client(trust_env=False, timeout=2.0) as client:
        addresses = Addresses()
        config = write_config(
            folder,
            kafka={"bootstrap": kafka.bootstrap, "prefix": "bench"},
            sources={"b": {**_NOWHERE, "tables": ["bank.*"]}},
            coordination=addresses.config,
        )
        processes = Processes(config, addresses)
        try:
            for number in range(2):
                processes.coordinator(number)
            yield Pair(processes, client)
        finally:
            processes.close()


def run(times: int = TIMES) -> list[float]:
    """Return the seconds of each take-over, in order."""
    with tempfile.TemporaryDirectory(prefix="rowlock-takeover-") as folder, pairs(Path(folder)) as pair:
        return [pair.take_over(number * OUT_OF_STEP_S) for number in range(times)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    found = run(parser.parse_args().times)
    print("take-over", [round(seconds, 2) for seconds in found], f"goal {GOAL_S:g} s")


if __name__ == "__main__":
    main()
