"""Fewer slots in Spark than there should be: from the line of the apply process to what people see."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from consumer.reporting.protocol import LineWriter
from consumer.reporting.slot_lines import OPENING_S, SlotLines, build_slot_report
from consumer.slots.pool import SlotPool
from coordinator.core.agent import AgentTick
from coordinator.rest.models import AgentList
from rowlock.agent.reported import ReportedFigures
from rowlock.cli import main
from rowlock.commands.cluster_tables import build_agents_table
from rowlock.commands.slot_lines import explain_shortage, format_slot_lines
from rowlock.inspect.observed.slots import AgentSlotReport, read_agent_slots
from rowlock.inspect.placement import Placement
from rowlock.inspect.status import STATUS_FORMAT_VERSION, Status
from rowlock.live.figures import LiveReading, LiveSnapshot, compute_figures
from schemas.slots import LONGEST_FAILURE, MOST_FAILURES, SlotReport
from tests.kits.coordinator_server import PlayedCoordinator
from tests.kits.slot_pool import Slots

BAD = "the executor on host-b has rowlock 1234 (the agent has 5678): run `rowlock spark package` again"
SHORT = SlotReport(2, 4, 180, 4, {"host-b": BAD})
OTHERS = "Until they open, the slots that are open apply its units."
OWN = "Until they open, its own slot applies its units."
LINE = f"slots: 2 of 4 on agent a1 for 3 min: host-b: {BAD}. {OTHERS}"


class Lines:
    """The lines of a process with four slots, which Spark has cores for."""

    def __init__(self, cores: int | None = 4) -> None:
        self._out = io.StringIO()
        self.slots = SlotLines(4, LineWriter(self._out), lambda: cores)

    def write(self, count: int, now: float) -> list[dict[str, Any]]:
        """Return the lines that are written when `count` slots are open."""
        self._out.seek(0)
        self._out.truncate()
        self.slots.write_changes(count, now)
        return [json.loads(line) for line in self._out.getvalue().splitlines()]


# what is reported


@pytest.mark.parametrize(
    ("count", "short_s", "expected"),
    [
        (4, 0.0, SlotReport(4, 4)),
        (5, 0.0, SlotReport(5, 4)),
        (3, 0.0, None),
        (0, OPENING_S - 0.1, None),
        (3, OPENING_S, SlotReport(3, 4, 30, 4, {"host-b": BAD})),
        (0, 95.7, SlotReport(0, 4, 95, 4, {"host-b": BAD})),
    ],
)
def test_missing_slots_are_reported_after_the_time_to_open(
    count: int, short_s: float, expected: SlotReport | None
) -> None:
    assert build_slot_report(count, 4, short_s, 4, {"host-b": BAD}) == expected


def test_a_usual_start_reports_no_missing_slot() -> None:
    lines = Lines()
    lines.slots.note_failure("host-b", BAD)
    assert [lines.write(count, now) for now, count in ((100.0, 0), (105.0, 1), (129.0, 3))] == [[], [], []]
    assert lines.write(4, 129.5) == [
        {"kind": "slots", "open": 4, "configured": 4, "short_s": 0, "cores": None, "failures": {}}
    ]


def test_slots_are_reported_again_only_if_something_changed() -> None:
    lines = Lines(cores=2)
    lines.write(2, 100.0)
    (first,) = lines.write(2, 130.0)
    assert (first["open"], first["short_s"], first["cores"], first["failures"]) == (2, 30, 2, {})
    assert lines.write(2, 131.0) == []
    lines.slots.note_failure("host-b", "lost")
    assert [each["failures"] for each in lines.write(2, 140.0)] == [{"host-b": "lost"}]
    lines.slots.note_failure("host-b", "lost")
    assert lines.write(2, 150.0) == []
    (fewer,) = lines.write(1, 190.0)
    assert (fewer["open"], fewer["short_s"]) == (1, 90), "since slots are missing, not since the last change"


def test_open_slots_end_a_shortage_and_its_failures() -> None:
    lines = Lines()
    lines.slots.note_failure("host-b", BAD)
    lines.write(2, 100.0)
    lines.write(2, 130.0)
    assert [each["failures"] for each in lines.write(4, 200.0)] == [{}]
    assert lines.write(3, 210.0) == [], "a slot that has just been lost may open again"
    (later,) = lines.write(3, 240.0)
    assert (later["short_s"], later["failures"]) == (30, {})


def test_cores_are_asked_for_only_while_a_shortage_is_reported() -> None:
    asked: list[float] = []
    slots = SlotLines(4, LineWriter(io.StringIO()), lambda: asked.append(1.0) or 2)  # type: ignore[func-returns-value]
    for count, now in ((4, 0.0), (2, 1.0), (2, 30.0)):
        slots.write_changes(count, now)
    assert asked == []
    slots.write_changes(2, 31.0)
    assert asked == [1.0]


def test_the_newest_failures_are_kept_and_cut() -> None:
    lines = Lines()
    for number in range(MOST_FAILURES + 2):
        lines.slots.note_failure(f"h{number}", "x" * 1000)
    lines.slots.note_failure("h2", "again")
    lines.write(0, 0.0)
    (line,) = lines.write(0, 30.0)
    failures = line["failures"]
    assert list(failures) == [f"h{n}" for n in range(3, MOST_FAILURES + 2)] + ["h2"]
    assert (len(failures["h3"]), failures["h2"]) == (LONGEST_FAILURE, "again")


def test_the_process_s_own_slot_does_not_count() -> None:
    slots = Slots()
    pool: SlotPool = slots.pool
    assert pool.count_open() == 0
    _, number = slots.open(1)
    slots.open(2)
    assert pool.count_open() == 2
    pool.lose_slot(number)
    assert pool.count_open() == 1


# the agent


def test_a_shortage_grows_older_until_the_process_ends() -> None:
    now = [50.0]
    figures = ReportedFigures(clock=lambda: now[0])
    assert figures.get_slots() is None
    figures.record_slots(
        {"kind": "slots", "open": 2, "configured": 4, "short_s": 30, "failures": {"host-b": BAD}}
    )
    now[0] += 150.9
    assert figures.get_slots() == SlotReport(2, 4, 180, None, {"host-b": BAD})
    figures.record_slots({"kind": "slots", "open": 4, "configured": 4})
    now[0] += 10
    assert figures.get_slots() == SlotReport(4, 4)
    figures.forget_slots()
    assert figures.get_slots() is None


# what people see


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (SHORT, f"2 of 4 on agent a1 for 3 min: host-b: {BAD}. {OTHERS}"),
        (SlotReport(2, 4, 45, 2), f"2 of 4 on agent a1 for 45.0 s: Spark grants 2 cores. {OTHERS}"),
        (SlotReport(1, 2, 45), f"1 of 2 on agent a1 for 45.0 s: Spark names no reason. {OTHERS}"),
        (
            SlotReport(0, 2, 45, 1, {"": "no executor", "h": "ended with code: 1.."}),
            f"0 of 2 on agent a1 for 45.0 s: Spark grants 1 core; no executor; h: ended with code: 1. {OWN}",
        ),
    ],
)
def test_a_shortage_names_its_reasons_and_what_applies_the_units(slots: SlotReport, expected: str) -> None:
    assert explain_shortage("a1", slots) == f"slots: {expected}"


def read_rows(report: SlotReport | None) -> list[dict[str, Any]]:
    """Return the agents as REST answers them after an agent with `report` has sent its heartbeat."""
    played = PlayedCoordinator().elect()
    played.join("a1")
    played.run(2.0)
    played.now += 1.0
    played._agent("a1", AgentTick(report))
    played.settle()
    answer = AgentList.model_validate(SimpleNamespace(agents=list(played.view().agents)))
    rows: list[dict[str, Any]] = json.loads(answer.model_dump_json(by_alias=True))["agents"]
    return rows


def test_slots_of_a_heartbeat_reach_rest_and_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (row,) = read_rows(SHORT)
    assert row["slots"] == {
        "open": 2,
        "configured": 4,
        "short_s": 180,
        "cores": 4,
        "failures": {"host-b": BAD},
    }
    slots = read_agent_slots([row])
    assert slots == (AgentSlotReport("a1", SHORT),)
    seen = Status(STATUS_FORMAT_VERSION, 0, slots=slots)
    assert seen.healthy, "units go on"
    assert seen.as_dict()["slots"] == ({"agent": "a1", "slots": row["slots"]},)
    reader = SimpleNamespace(read_status=lambda: seen, close=lambda: None)
    monkeypatch.setattr("rowlock.inspect.status.StatusReader", lambda _: reader)
    config = tmp_path / "c.yaml"
    config.write_text(
        "kafka: {bootstrap: '127.0.0.1:1'}\n"
        "sources: {b: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: x, tables: [b.*]}}\n"
    )
    shown = CliRunner().invoke(main, ["status", "-c", str(config)])
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, LINE)


def test_agents_list_has_a_column_for_open_slots() -> None:
    (row,) = read_rows(SHORT)
    assert list(build_agents_table([row]).columns[-2].cells) == ["2 of 4"]
    (unknown,) = read_rows(None)
    assert list(build_agents_table([unknown]).columns[-2].cells) == ["–"]
    assert format_slot_lines(read_agent_slots([unknown])) == []
    del unknown["slots"]  # a leader of 0.2.0
    assert list(build_agents_table([unknown]).columns[-2].cells) == ["–"]
    assert read_agent_slots([unknown]) == ()


def test_slots_of_an_agent_that_is_not_heard_are_not_shown() -> None:
    (row,) = read_rows(SHORT)
    assert read_agent_slots([row | {"state": "expired"}]) == ()


def test_open_slots_are_no_line() -> None:
    (row,) = read_rows(SlotReport(4, 4))
    assert format_slot_lines(read_agent_slots([row])) == []


def test_the_live_view_shows_a_shortage_while_it_lasts() -> None:
    def list_problems(*slots: AgentSlotReport) -> tuple[str, ...]:
        reading = LiveReading(0, Placement(slots=slots))
        return compute_figures(LiveSnapshot(reading), 0).problems

    assert list_problems(AgentSlotReport("a1", SHORT)) == (LINE,)
    assert list_problems(AgentSlotReport("a1", SlotReport(4, 4))) == ()


def test_long_failures_of_an_agent_are_cut() -> None:
    (row,) = read_rows(SlotReport(0, 1, 40, None, {f"h{n}": "x" * 1000 for n in range(MOST_FAILURES + 1)}))
    assert list(row["slots"]["failures"]) == [f"h{n}" for n in range(1, MOST_FAILURES + 1)]
    assert {len(error) for error in row["slots"]["failures"].values()} == {LONGEST_FAILURE}
