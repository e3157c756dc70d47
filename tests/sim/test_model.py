"""The whole way under many seeds is right; without any one of its rules it goes wrong within a bounded number of seeds."""

from __future__ import annotations

import os

import pytest

from tests.sim.findings import seeds_needed
from tests.sim.rules import FINDINGS
from tests.sim.world import World

SEEDS = int(os.environ.get("ROWLOCK_SIM_SEEDS", "200"))
PORTIONS = 10


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_seed_ends_with_the_target_equal_to_the_source(portion: int) -> None:
    for seed in range(portion, SEEDS, PORTIONS):
        try:
            World(seed).run()
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim.replay {seed}")
            raise


@pytest.mark.parametrize("finding", FINDINGS)
def test_without_the_rule_a_history_goes_wrong(finding: str) -> None:
    assert seeds_needed(finding) is not None
