"""A running system takes another configuration in: a table, a route, a policy, by each of the three ways; a
bad file changes nothing.

A unit that is not concerned keeps its assignment. The judge is the full comparison of rows, and the
coordinator's list of units.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowlock.coordinator.leader_client import LeaderClient
from rowlock.errors import CommandError
from schemas.config.model import load_config
from tests.kits.reloaded_run import PATIENCE_S, ReloadedRun, by_command
from tests.kits.reloaded_run import system as system

pytestmark = pytest.mark.timeout(1800)


def by_signal(system: ReloadedRun) -> None:
    seen = system.reloads()
    system.hang_up()
    system.run.until(lambda: system.reloads() > seen, "the reload that SIGHUP asks for", PATIENCE_S)


def by_rest(system: ReloadedRun) -> None:
    with LeaderClient.from_config(load_config(system.config)) as leader:
        dry = leader.reload_config(dry_run=True)
        assert (dry["in_force"], dry["changed"]) == (False, ["pipeline/p", "source/b1"])
        assert "pipelines.p.conflicts: replace → quarantine" in dry["changes"]
        assert leader.reload_config()["in_force"] is True


def settled(system: ReloadedRun, before: dict[str, int], *changed: str) -> dict[str, int]:
    """Await new assignments of the units `changed`, and see that all others have kept theirs."""

    def all_anew() -> dict[str, int] | None:
        now = system.epochs()
        return now if all(now.get(unit, 0) > before.get(unit, 0) for unit in changed) else None

    now: dict[str, int] = system.run.until(all_anew, f"{changed} placed again", PATIENCE_S)
    kept = {unit: epoch for unit, epoch in before.items() if unit not in changed}
    assert {unit: now.get(unit) for unit in kept} == kept
    return now


def test_a_running_system_takes_changes_in(system: ReloadedRun) -> None:
    """In one test: each step begins with what the one before has left."""
    one, other = f"apply/p/{system.topic('b1', 'one')}", f"apply/q/{system.topic('b2', 'other')}"
    two = f"apply/p/{system.topic('b1', 'two')}"
    before = system.run.until(lambda: (e := system.epochs()) and len(e) == 4 and e, "four units", PATIENCE_S)
    assert set(before) == {"capture/b1", "capture/b2", one, other}

    # a table more: only the capture of its source is placed again
    assert planned(system) == {"tables": [], "targets": [], "layouts": []}
    system.write(lambda raw: raw["sources"]["b1"]["tables"].append(f"{system.db}.two"))
    (new,) = planned(system)["tables"]
    assert (new["source"], new["table"], new["what"]) == ("b1", f"{system.db}.two", "new")
    assert (new["topic"], new["creates_topic"], new["rows"]) == (system.topic("b1", "two"), True, 3)
    by_command(system)
    before = settled(system, before, "capture/b1")
    system.flows("one", "public.one")

    # a route for it, planned: the units of the pipeline are placed again, and there is one more
    system.write(
        lambda raw: raw["pipelines"]["p"]["routes"].append(
            {"from": f"{system.db}.two", "to": "public.second"}
        )
    )
    plan = planned(system)
    assert plan["tables"] == []
    assert [(each["table"], each["creates"]) for each in plan["targets"]] == [("public.second", True)]
    assert [(each["table"], each["why"]) for each in plan["layouts"]] == [(f"b1:{system.db}.one", "routes")]
    by_signal(system)
    before = settled(system, before, one, two)
    system.flows("two", "public.second")
    system.flows("one", "public.one")

    # a bad file, by each way: its line is said, and nothing changes
    good = system.config.read_text()
    line = next(number for number, text in enumerate(good.splitlines(), 1) if "lanes: 2" in text)
    refusals = len(system.events("command refused"))
    system.config.write_text(good.replace("lanes: 2", "lanes: many"))
    bad_and_refused(system, good, line, refusals)
    assert settled(system, before) == before

    # a policy, and a table less
    def policy(raw: dict[str, Any]) -> None:
        raw["pipelines"]["p"]["conflicts"] = "quarantine"
        raw["sources"]["b1"]["tables"] = [f"{system.db}.two"]

    system.write(policy)
    assert [(each["table"], each["what"]) for each in planned(system)["tables"]] == [
        (f"{system.db}.one", "no more")
    ]
    by_rest(system)
    del before[one]  # the unit of the table that is taken out ends
    before = settled(system, before, two, "capture/b1")
    system.run.until(lambda: one not in system.epochs(), "the unit's end", PATIENCE_S)
    system.pg("INSERT INTO public.second VALUES (900, 'taken')")
    system.change("b1", "INSERT INTO two VALUES (800, 'taken')")
    held = "SELECT count(*) FROM rowlock_quarantine"
    system.run.until(lambda: system.pg(held) == [(1,)], "the row that the policy now holds back", PATIENCE_S)
    system.change("b1", "INSERT INTO one VALUES (700, 'no longer captured')")
    system.change("b1", "DELETE FROM two WHERE id = 800")
    system.pg("DELETE FROM public.second WHERE id = 900")
    assert system.pg("SELECT count(*) FROM public.one WHERE id = 700") == [(0,)]

    # what is killed comes up again under what is in force, whatever its file says
    good = system.config.read_text()
    system.config.write_text("no: configuration")
    for name in ("agent", "coordinator"):
        system.run.kill_processes("rowlock.cli", name)
    system.change("b1", "INSERT INTO two VALUES (801, 'after the kill')")
    system.run.until(
        lambda: system.pg("SELECT name FROM public.second WHERE id = 801"), "a row after the kill", PATIENCE_S
    )
    system.flows("other", "public.q_other", "b2")
    system.config.write_text(good)
    assert system.equal("two", "public.second")
    assert system.pg("SELECT count(*) FROM public.one WHERE id = 700") == [(0,)]


def planned(system: ReloadedRun) -> dict[str, Any]:
    """What `check --plan` says of the file, without the sums."""
    result = system.invoke("check", "--plan", "--output", "json")
    assert result.exit_code == 0, result.output
    reported = json.loads(result.stdout)
    assert reported["reload"] is not None, "a coordinator answers"
    return {name: reported[name] for name in ("tables", "targets", "layouts")}


def bad_and_refused(system: ReloadedRun, good: str, line: int, refusals: int) -> None:
    """The bad file is there, and each way of a reload is refused. What asks needs a good file of its own to
    find the leader."""
    aside = system.config.with_name("aside.yaml")
    aside.write_text(good)
    expected = f"{system.config}:{line}: pipelines.p.lanes"
    refused = system.invoke("reload", config=aside)
    assert refused.exit_code == 2
    assert expected in refused.output
    with (
        LeaderClient.from_config(load_config(aside)) as leader,
        pytest.raises(CommandError, match="whole number"),
    ):
        leader.reload_config()
    system.hang_up()

    seen = system.run.until(
        lambda: len(found := system.events("command refused", aside)) >= refusals + 3 and found,
        "three refusals in the events",
        PATIENCE_S,
    )
    assert all(expected in each["why"] for each in seen[refusals:])
    system.config.write_text(good)
