"""Changed routes that a running system takes in, or refuses: where the rows of a table go."""

from __future__ import annotations

import json

import pytest

from rowlock.coordinator.control_view import find_living_leader
from rowlock.processes.run import build_agent_name
from schemas.config.model import load_config
from tests.kits.reloaded_run import PATIENCE_S, ReloadedRun, by_command
from tests.kits.reloaded_run import system as system

pytestmark = pytest.mark.timeout(1800)


def test_a_route_to_another_table_that_exists_copies_the_rows(system: ReloadedRun) -> None:
    """The changes alone would go on there, without the rows of before."""
    system.pg("CREATE TABLE public.moved_other (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE)")
    before = system.read("hq", "SELECT id, name FROM public.q_other ORDER BY id")
    system.write(
        lambda raw: raw["pipelines"]["q"]["routes"][0].update(to="public.moved_{table}"),
    )
    plan = system.invoke("check", "--plan")
    assert "the route wrote to public.q_other before" in plan.output
    by_command(system)
    system.run.until(
        lambda: system.equal("other", "public.moved_other", "b2"), "the copy into the new table", PATIENCE_S
    )
    system.flows("other", "public.moved_other", "b2")
    assert system.read("hq", "SELECT id, name FROM public.q_other ORDER BY id") == before


def test_a_route_to_a_table_with_rows_of_another_table_is_refused(system: ReloadedRun) -> None:
    """Each of them would overwrite the other's rows. A restart leaves out these two tables alone."""
    for table in ("twin", "third"):
        system.change(
            "b2",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE)",
            f"INSERT INTO {table} VALUES (1, 'another row 1')",
        )
    place = system.parts["pipelines"]["q"]["routes"][0]["to"]
    shared = place.format(table="other")
    for table in ("twin", "third"):
        system.flows(table, place.format(table=table), "b2")
    good, before = system.config.read_text(), system.epochs()
    system.write(
        lambda raw: raw["pipelines"]["q"]["routes"].insert(0, {"from": f"{system.db}.twin", "to": shared})
    )
    checked = system.invoke("check", "--output", "json")
    errors = [each for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"]
    assert errors
    refused = system.invoke("reload")
    assert refused.exit_code == 2
    for error in errors:
        assert f"{error['place']}: {error['what']}. {error['remedy']}" in refused.output
    for table in ("twin", "other"):
        system.flows(table, place.format(table=table), "b2")
    assert system.epochs() == before

    leader = find_living_leader(load_config(system.config).kafka)
    assert leader is not None, "what a second `run` warns of"
    assert leader.name == build_agent_name()
    system.run.stop()
    assert find_living_leader(load_config(system.config).kafka) is None
    system.run.start()
    system.flows("third", place.format(table="third"), "b2")
    printed = system.run.log.read_text()
    assert f"pipeline q does not apply b2:{system.db}.other and b2:{system.db}.twin until" in printed
    units = system.epochs()
    assert f"apply/q/{system.topic('b2', 'third')}" in units
    assert units.keys().isdisjoint(f"apply/q/{system.topic('b2', each)}" for each in ("twin", "other"))

    system.config.write_text(good)
    system.parts["pipelines"]["q"]["routes"].pop(0)
    by_command(system)
    for table in ("twin", "other"):
        system.flows(table, place.format(table=table), "b2")
