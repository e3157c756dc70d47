"""Histories of the agent as text: "announce; prepare u#5 ⇒ prepare u#5, answer u#5 preparing".

The grammar is that of history_steps.py; u#5 is unit u under assignment 5. Steps:

- `announce`, `announce p 8`: owner o of term 7 announces itself, or p of term 8;
- `prepare u#5`, `start u#5`, `remove u#5`, `forget u#5`: its instruction; `prepare u#5 of 8`: in another
  term; `start u#5 after 10`: it was sent 10 seconds ago;
- `replicate u`: the agent prepares and starts u#5; `grant u#5 v#6`: the answer to a heartbeat prolongs
  their leases, perhaps `after 7` seconds; `superseded by 8`: the incarnation is replaced, in that term;
- `u#5: prepared`, `u#5: at 4/6`, `u#5: ended`, `u#5: ended 9/9`: an event of the unit's worker;
- `tick`, `wait 1.5`, `shutdown`: the agent's clock, seconds pass, and its end;
- `u is stopping`: no step, but a look at the phase of u.

Orders are what workers are to do, and what goes up to the owner: answers to instructions, reports that
no instruction asked for, rejections, and other messages by their names.
"""

from __future__ import annotations

from coordinator.core.agent import (
    AgentEffect,
    AgentTick,
    ExitAgent,
    SendUp,
    Shutdown,
    WorkerEventReceived,
)
from coordinator.core.messages import (
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Header,
    Heartbeat,
    Rejected,
    Superseded,
    UnitStatus,
    Up,
)
from schemas.units import Prepared, UnitOperation, UnitProgress, UnitProgressed, WorkerEnded, WorkerEvent
from tests.kits.agent_core import EPOCH, LEASE, REV, Driver
from tests.kits.history_steps import Steps, play_steps


def play(history: str, driver: Driver | None = None) -> Driver:
    """Play a history on a new agent, or go on with one. The first step that differs is an error."""
    driver = driver or Driver()
    play_steps(history, STEPS, driver, lambda effects: [_show(each) for each in effects])
    return driver


def _show(effect: AgentEffect) -> str:
    match effect:
        case SendUp(message):
            return _show_message(message)
        case ExitAgent(why):
            return f"exit: {why}"
    return f"{type(effect).__name__.removesuffix('Worker').lower()} {effect.unit}#{effect.assignment}"  # type: ignore[union-attr]


def _show_message(message: Up) -> str:
    match message:
        case DispatchResponse():
            return ("answer " if message.answers else "report ") + _show_status(message.status)
        case Rejected():
            return f"reject, {message.known_rev} is known"
        case Checkpoint():
            return "checkpoint " + " ".join(
                f"{unit}#{number} {_show_mark(mark)}" for unit, number, mark in message.marks
            )
        case Heartbeat():
            return " ".join(("heartbeat", *map(_show_status, message.statuses)))
    return type(message).__name__.lower()


def _show_status(status: UnitStatus) -> str:
    mark = f" {_show_mark(status.mark)}" if status.mark else ""
    return f"{status.unit}#{status.assignment} {status.state.value}{mark}"


def _show_mark(mark: UnitProgress) -> str:
    return f"{mark.checkpoint_ts}/{mark.resolved_ts}"


def _announce(driver: Driver, owner: str | None, rev: str | None) -> None:
    driver.announce(rev=int(rev or REV), owner=owner or "o")


def _instruct(driver: Driver, op: str, unit: str, number: str, rev: str | None, delay_s: str | None) -> None:
    header = Header(int(rev or REV), EPOCH, int(number), 1)
    sent = driver.now - float(delay_s or 0)
    driver.get(Dispatch(header, unit, UnitOperation(op), None, sent, LEASE))


def _grant(driver: Driver, units: str, delay_s: str | None) -> None:
    pairs = (each.split("#") for each in units.split())
    driver.grant(*((unit, int(number)) for unit, number in pairs), echo=driver.now - float(delay_s or 0))


def _work(driver: Driver, unit: str, number: str, word: str, mark: str | None) -> None:
    progress = UnitProgress(*map(int, mark.split("/"))) if mark else None
    event: WorkerEvent = WorkerEnded(int(number), progress)
    if word == "prepared":
        event = Prepared(int(number))
    elif word == "at" and progress:
        event = UnitProgressed(int(number), progress)
    driver.do(WorkerEventReceived(unit, event))


def _wait(driver: Driver, seconds: str) -> None:
    driver.now += float(seconds)


def _look(driver: Driver, unit: str, phase: str) -> None:
    found = driver.state.units.find_unit(unit).state.value
    assert found == phase, f"{unit} is {found}, not {phase}"


STEPS: Steps = {
    r"announce(?: (\w+) (\d+))?": _announce,
    r"(prepare|start|remove|forget) (\w+)#(\d+)(?: of (\d+))?(?: after ([\d.]+))?": _instruct,
    r"replicate u": Driver.replicate,
    r"grant((?: \w+#\d+)+)(?: after ([\d.]+))?": _grant,
    r"superseded by (\d+)": lambda driver, rev: driver.get(Superseded(Header(int(rev), EPOCH))),
    r"(\w+)#(\d+): (prepared|ended|at)(?: (\d+/\d+))?": _work,
    r"tick": lambda driver: driver.do(AgentTick()),
    r"wait ([\d.]+)": _wait,
    r"shutdown": lambda driver: driver.do(Shutdown()),
    r"(\w+) is (\w+)": _look,
}
