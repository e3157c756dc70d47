"""Target tables that change while their units are killed, taken over and paused: all seeds end as the
sources, and each rule is needed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from consumer.attempt.evolution import in_target
from consumer.tables.evolution import plans
from consumer.tables.router import SchemaChangePolicy
from tests.sim.changing import SchemaChangeSimulation
from tests.sim.changing_rules import RENAME_RULES, RULES
from tests.sim.truth import Wrong

SEEDS = 60
SLOW, PARTS = 2000, 20
OFTEN = 0.15
"""So many of a source's changes are statements where each history is to have all of its own before it
ends."""
OFTEN_AT_ONCE = 0.5
"""And so many where statements come while branches join."""
NEEDED = 300
"""Seeds within which the loss of a rule shows."""


@pytest.mark.parametrize("part", range(4))
def test_every_history_ends_as_its_sources(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        SchemaChangeSimulation(seed).run()


@pytest.mark.parametrize("policy", ["ignore", "stop"])
def test_where_a_person_changes_the_target_table_it_ends_as_its_source(policy: SchemaChangePolicy) -> None:
    """Under `stop` the seeds 20, 29 and 40 asked the target without end: what an attempt was given ended in
    front of the copy at which it goes on."""
    worlds = [SchemaChangeSimulation(seed, policy=policy) for seed in range(SEEDS)]
    for world in worlds:
        world.run()
    assert (sum(world.copies for world in worlds) > SEEDS) == (policy == "stop")


@pytest.mark.parametrize(("seed", "often"), [(65, None), (188, None), (330, None), (1655, None), (91, 0.15)])
def test_a_history_that_went_wrong_once_ends_as_its_sources(seed: int, often: float | None) -> None:
    """65: a branch joins after another's unique index. 188, 330: a problem that stops a unit in the middle of
    an alteration, and that a copy heals, did not name the event after which the copy has to begin. 1655: a
    column got the name of one that the source had dropped and the target kept. 91: after a copy's rows, in
    their batch, one row takes the unique value that another gives up: that one was displaced."""
    SchemaChangeSimulation(seed, often).run()


@pytest.mark.parametrize("part", range(2))
def test_statements_of_several_actions_end_as_their_sources(part: int) -> None:
    """With names that columns had once, or that the target has chosen itself, and types of other values."""
    for seed in range(part * 20, part * 20 + 20):
        SchemaChangeSimulation(seed, OFTEN, wide=True).run()


def test_where_a_type_does_not_fit_a_person_changes_it_and_the_copy_goes_on() -> None:
    worlds = [SchemaChangeSimulation(seed, OFTEN, "lenient", wide=True) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(world.changed_by_hand for world in worlds) > 5


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_second_column_of_an_earlier_version_ends_as_its_source(policy: SchemaChangePolicy) -> None:
    """Whatever is renamed, dropped and added meanwhile, also under the names of the pair."""
    for seed in range(20):
        SchemaChangeSimulation(seed, OFTEN, policy, wide=True, mapped=True).run()


def test_where_two_columns_may_be_written_as_one_some_seed_ends_wrong() -> None:
    """The source adds a column with the name that the target has for another one."""
    with mock.patch.object(plans, "find_duplicate_columns", return_value=[]):
        assert any(wrong(seed, OFTEN, policy="lenient", wide=True, mapped=True) for seed in range(NEEDED))


def test_where_a_statement_is_not_read_by_the_names_of_the_target_some_seed_ends_wrong() -> None:
    """A rename of the mapped column gives its new name to the old column, which the unit does not write."""
    with mock.patch.object(plans, "translate_changes", lambda changes, *_: changes):
        assert any(wrong(seed, OFTEN, policy="lenient", wide=True, mapped=True) for seed in range(NEEDED))


@pytest.mark.parametrize("policy", ["lenient", "evolve", "stop", None])
def test_columns_with_names_of_the_route_end_as_their_source(policy: SchemaChangePolicy | None) -> None:
    """Also if the source uses these names itself, and if a person changes them meanwhile."""
    for seed in range(20):
        SchemaChangeSimulation(seed, OFTEN, policy, wide=True, renaming=True).run()


@pytest.mark.parametrize("rule", RENAME_RULES)
def test_without_a_rule_for_names_of_the_route_some_seed_ends_wrong(rule: str) -> None:
    with RENAME_RULES[rule]():
        assert any(wrong(seed, OFTEN, policy="lenient", wide=True, renaming=True) for seed in range(NEEDED))


@pytest.mark.parametrize("seed", [1207, 1323])
def test_a_statement_of_several_actions_that_went_wrong_once_ends_as_its_source(seed: int) -> None:
    """1207: a branch joins after another's column that takes no NULL, and reports it. 1323: a required column
    gets another type: its rows get a value of that."""
    SchemaChangeSimulation(seed, OFTEN, wide=True).run()


def test_a_branch_that_joins_looks_at_the_table_under_the_locks_of_all() -> None:
    """Another one's statement takes a column away between its look and the storing of what it needs."""
    SchemaChangeSimulation(388, OFTEN_AT_ONCE, wide=True).run()
    with (
        mock.patch.object(in_target, "require_table_unchanged"),
        pytest.raises(Wrong, match="lacks the columns"),
    ):
        SchemaChangeSimulation(388, OFTEN_AT_ONCE, wide=True).run()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_more_histories_end_as_their_sources(part: int) -> None:
    """In parts: as one test they took longer on a loaded machine than any test may."""
    for seed in range(SEEDS + part, SLOW, PARTS):
        SchemaChangeSimulation(seed).run()
        SchemaChangeSimulation(seed, OFTEN).run()
        SchemaChangeSimulation(seed, policy="ignore").run()
        SchemaChangeSimulation(seed, policy="stop").run()
        SchemaChangeSimulation(seed, OFTEN, wide=True).run()


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_seed_ends_wrong(rule: str) -> None:
    off, often = RULES[rule]
    with off():
        assert any(wrong(seed, often) for seed in range(NEEDED))


def wrong(seed: int, often: float, **more: Any) -> bool:
    """Whether the history ends wrong, or fails."""
    try:
        SchemaChangeSimulation(seed, often, **more).run()
    except Exception:  # noqa: BLE001  # whatever a rule prevents
        return True
    return False
