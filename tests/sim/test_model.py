"""The whole way under many seeds is right; without any one of its rules it goes wrong within a bounded number of seeds."""

from __future__ import annotations

import os

import pytest

from tests.sim.findings import seeds_needed
from tests.sim.rules import FINDINGS
from tests.sim.seeds import over_seeds
from tests.sim.world import run_seed

SEEDS = int(os.environ.get("ROWLOCK_SIM_SEEDS", "200"))


@pytest.mark.timeout(3600)
def test_every_seed_ends_with_the_target_equal_to_the_source() -> None:
    assert sum(over_seeds(run_seed, range(SEEDS))) == SEEDS


@pytest.mark.parametrize("finding", FINDINGS)
def test_without_the_rule_a_history_goes_wrong(finding: str) -> None:
    assert seeds_needed(finding) is not None
