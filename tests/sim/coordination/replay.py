"""`python -m tests.sim.coordination.replay SEED [MUTATION]`: run one seed again; says what it finds."""

from __future__ import annotations

import sys

from tests.sim.coordination.mutations import BY_NAME, find
from tests.sim.coordination.nodes import Options
from tests.sim.coordination.world import run


def main(seed: int, mutation: str | None) -> None:
    if mutation is not None:
        print(find(BY_NAME[mutation], range(seed, seed + 1)) or "not found with this seed")
        return
    world = run(Options(seed))
    print(
        f"seed {seed}: {world.events} events, well {world.now - 20:.1f} s after healing, "
        f"faults {sorted(world.faults)}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
