"""Replay one seed of the model, saying what happens: python -m tests.sim.replay SEED [FINDING]."""

from __future__ import annotations

import sys

from tests.sim.rules import without
from tests.sim.switches import switched_off
from tests.sim.world import PipelineSimulation


def main() -> None:
    seed = int(sys.argv[1])
    finding = sys.argv[2] if len(sys.argv) > 2 else ""
    world = PipelineSimulation(seed, without(finding), finding, verbose=True)
    try:
        with switched_off(finding):
            world.run()
    finally:
        for topic, source in zip(world.topics, world.sources, strict=True):
            print(f"source {source.name}: {source.log}")
            for offset, record in enumerate(topic.records):
                print(f"  {offset}: {record.value()!r}")
        print(f"progress {world.target.progress}")


if __name__ == "__main__":
    main()
