"""Histories of the owner as text: "a joins; +u; tick ⇒ a prepare u; a: prepared u ⇒ a start u".

The grammar is that of history_steps.py. Orders are what an agent is to do with a
unit (and from which progress), targets to fence, and alarms; "nothing" if none. Steps:

- `a b join`: agents register and report that they hold nothing; `a restarts`: its next incarnation registers;
  `a syncs`: it reports that it holds nothing; `a beats`: a heartbeat; `a stopping`: that of an agent that
  ends;
- `+u -v +w#2`: the inventory has u, no v, and w created anew under the identity 2; `pipeline p`: from then
  on it also has the pipelines, so that units that are missing are doubted;
- `a: prepared u, stopped v 8/9`: a heartbeat with the phases of units, and their progress;
- `u on a`: a prepares u and starts it, in two heartbeats; `fenced u`: its target is fenced as ordered;
- `tick`, `wait 1.5`: the owner's clock; seconds pass;
- `pause u`, `resume u`, `drain a`, `move u b`: an operator's command.
"""

from __future__ import annotations

import re

from coordinator.core.leader.state import (
    Alarm,
    Drain,
    Fence,
    Fenced,
    Inventory,
    LeaderDecision,
    Move,
    Pause,
    Resume,
    SendMessage,
    Tick,
)
from coordinator.core.messages import Dispatch, Hello, Liveness, Sync, UnitStatus
from schemas.units import UnitOperation, UnitPhase, UnitProgress
from tests.kits.history_steps import Steps, play_steps
from tests.kits.leader_core import Cluster, spec

COMMANDS = {"pause": Pause, "resume": Resume, "drain": Drain, "move": Move}


def play(history: str, cluster: Cluster | None = None) -> Cluster:
    """Play a history on a new owner, or go on with one. The first step that differs is an error."""
    cluster = cluster or Cluster()
    play_steps(history, STEPS, cluster, _list_orders)
    return cluster


def _list_orders(effects: list[LeaderDecision]) -> list[str]:
    orders = [
        f"{each.agent} {each.message.op.value} {each.message.unit}" + _show_start(each.message)
        for each in effects
        if isinstance(each, SendMessage) and isinstance(each.message, Dispatch)
    ]
    orders += [f"fence {each.unit}" for each in effects if isinstance(each, Fence)]
    return orders + [f"alarm {each.what}" for each in effects if isinstance(each, Alarm)]


def _show_start(order: Dispatch) -> str:
    starts = order.op in (UnitOperation.PREPARE, UnitOperation.START)
    return f" from {order.mark.checkpoint_ts}/{order.mark.resolved_ts}" if starts and order.mark else ""


def _join(cluster: Cluster, names: str) -> None:
    cluster.join(*names.split())


def _restart(cluster: Cluster, agent: str) -> None:
    number = int(cluster.state.members.by_name[agent].incarnation.rpartition("-")[2]) + 1
    cluster.up(Hello, agent, assignment=0, rev=0, incarnation=f"{agent}-{number}")


def _change_inventory(cluster: Cluster, changes: str) -> None:
    units = cluster.inventory
    for sign, unit, _, uid in re.findall(r"([+-])(\w+)(#(\w+))?", changes):
        units = {name: each for name, each in units.items() if name != unit}
        if sign == "+":
            units[unit] = spec(unit, uid or "1")
    cluster.inventory = units
    cluster.do(Inventory(tuple(units.values()), cluster.pipelines))


def _report(cluster: Cluster, agent: str, phases: str) -> None:
    found = []
    for part in phases.split(","):
        phase, unit, *progress = part.split()
        (assignment,) = [
            each.assignment for each in cluster.state.sets.by_unit[unit].replicas if each.agent == agent
        ]
        mark = UnitProgress(*map(int, progress[0].split("/"))) if progress else None
        found.append(UnitStatus(unit, assignment, UnitPhase(phase), mark))
    cluster.beat(agent, *found)


def _wait(cluster: Cluster, seconds: str) -> None:
    cluster.now += float(seconds)


def _command(cluster: Cluster, command: str, *names: str) -> None:
    cluster.do(COMMANDS[command](*names))


def _fenced(cluster: Cluster, unit: str) -> None:
    fence = [each for each in cluster.effects if isinstance(each, Fence) and each.unit == unit][-1]
    cluster.do(Fenced(unit, fence.assignment))


STEPS: Steps = {
    r"(\w+(?: \w+)*) joins?": _join,
    r"(\w+) restarts": _restart,
    r"(\w+) syncs": lambda cluster, agent: cluster.up(Sync, agent, sent=1.0),
    r"(\w+) beats": lambda cluster, agent: cluster.beat(agent),
    r"(\w+) stopping": lambda cluster, agent: cluster.beat(agent, liveness=Liveness.STOPPING),
    r"([+-]\w+(?:#\w+)?(?: [+-]\w+(?:#\w+)?)*)": _change_inventory,
    r"(\w+): (.+)": _report,
    r"(\w+) on (\w+)": lambda cluster, unit, agent: cluster.replicate(unit, agent),
    r"pipeline p": lambda cluster: cluster.pipelines.update(p=("s",)),
    r"tick": lambda cluster: cluster.do(Tick()),
    r"wait ([\d.]+)": _wait,
    r"(pause|resume|drain) (\w+)": _command,
    r"(move) (\w+) (\w+)": _command,
    r"fenced (\w+)": _fenced,
}
