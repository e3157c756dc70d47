"""The active configuration, the agents that have it, and the units that still run under an earlier one.

A change takes a number from the counter of assignments. A unit with an assignment below the number of
its part's last change was therefore placed under an earlier configuration (docs/adr/0024-reload.md). A
unit is only given to an agent with the active configuration.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.leader.sets import persist_records, take_next_number
from coordinator.core.leader.state import (
    Inventory,
    LeaderDecision,
    LeaderState,
    Refused,
    Reload,
    ReloadEnded,
)
from coordinator.core.leader.term_state import Reloading
from coordinator.core.members import Member, MemberState
from coordinator.core.messages import ConfigVersion, Liveness
from coordinator.core.records import ConfigRecord
from coordinator.core.replication import ReplicationSet
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.config.changes.parts import format_pipeline_part, format_source_part
from schemas.problems import Problem

#: The most lines of one agent that a refusal contains.
LINES = 20


def restore_configuration(state: LeaderState, record: ConfigRecord) -> None:
    """Begin with the configuration that an earlier leader activated."""
    state.configuration.restore(record)
    state.numbers.skip_to(max([record.revision, *state.configuration.since.values()]))


def get_active_version(state: LeaderState) -> ConfigVersion | None:
    """Return the configuration that agents have to load; None: not known."""
    found = state.configuration.record
    return None if found is None else ConfigVersion(found.digest, found.revision)


def has_active_config(state: LeaderState, member: Member) -> bool:
    """Return whether the agent has the active configuration. An agent that reports none counts as having
    it.
    """
    return (
        member.config is None
        or state.configuration.record is None
        or member.config == get_active_version(state)
    )


def accepts_units(state: LeaderState, member: Member) -> bool:
    """Return whether the agent can be given units."""
    return member.accepts and has_active_config(state, member)


def get_config_part(spec: InventoryUnit) -> str:
    """Return the part of the configuration under which a unit runs."""
    applies = spec.kind is UnitKind.APPLY and spec.pipeline is not None
    return format_pipeline_part(spec.pipeline or "") if applies else format_source_part(spec.source)


def is_stale(state: LeaderState, spec: InventoryUnit, current: ReplicationSet) -> bool:
    """Return whether a replica of the unit was placed under an earlier configuration."""
    since = state.configuration.since.get(get_config_part(spec), 0) if state.configuration.since else 0
    return any(replica.assignment < since for replica in current.replicas)


# the active configuration


def accept_inventory_config(
    state: LeaderState, event: Inventory, now: float, out: list[LeaderDecision]
) -> bool:
    """Return whether an inventory was made from the active configuration.

    The first inventory of a term activates its own configuration: the coordinator has just started, or
    its file has changed. A later one may have been read before a reload.
    """
    if not event.digest:
        return True
    if state.configuration.is_replaced_by_first(event.digest):
        _enable_config(state, event, frozenset(), now, out)
    state.configuration.confirm()
    return state.configuration.is_digest(event.digest)


def _enable_config(
    state: LeaderState,
    new: Inventory | Reload,
    changed: frozenset[str],
    now: float,
    out: list[LeaderDecision],
) -> None:
    """Activate a configuration: units that are placed from now on run under it.

    `changed` holds the parts that differ although their digests are equal. The configuration is compared
    with the record, not with what this coordinator's file held when it was elected.
    """
    known, digest, parts = state.configuration.record, new.digest, new.parts
    differ = changed | state.configuration.find_changes(parts.items())
    number = 0 if known is None and not changed else take_next_number(state)
    since = {part: number if part in differ else state.configuration.since.get(part, 0) for part in parts}
    record = ConfigRecord(digest, number, tuple((part, parts[part], since[part]) for part in sorted(parts)))
    restore_configuration(state, record)
    state.configuration.confirm()
    state.plan.note_change()
    if known is not None:
        state.history.record_config_change(digest, known.digest, differ)
    persist_records(state, [record], now, out)


# reload


def begin_reload(state: LeaderState, command: Reload, now: float, out: list[LeaderDecision]) -> None:
    """Ask the agents for the content of their files. The reload ends at once if there is no agent to ask."""
    if state.configuration.reloading is not None:
        out.append(Refused(command, Problem("another reload is under way", "ask again when it has ended")))
        return
    state.configuration.begin_reload(Reloading(command, take_next_number(state), now))
    continue_reload(state, now, out)


def continue_reload(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """End the current reload once all agents have answered, or one has not answered in time."""
    reloading = state.configuration.reloading
    if reloading is None:
        return
    asked = list(_list_asked_members(state))
    refusals = [problem for member in asked for problem in _list_refusals(reloading, member)]
    waiting = [member.name for member in asked if not _has_answered(reloading, member)]
    if waiting and not refusals and now < reloading.since + state.config.reload_timeout:
        return
    state.configuration.end_reload()
    command = reloading.command
    if waiting and not refusals:
        waited = f"{state.config.reload_timeout:g} s"
        refusals = [
            Problem(
                f"agent {name} has not reported within {waited} what its file contains",
                "see `rowlock agents list`",
            )
            for name in waiting
        ]
    if refusals:
        out.append(ReloadEnded(command.digest, refused=tuple(refusals)))
        return
    _enable_config(state, command, command.changed, now, out)
    out.append(ReloadEnded(command.digest, state.numbers.token))


def get_open_question(state: LeaderState, member: Member) -> int:
    """Return the number of the question that the agent has not answered; 0: none."""
    reloading = state.configuration.reloading
    return 0 if reloading is None or _has_answered(reloading, member) else reloading.number


def _list_asked_members(state: LeaderState) -> Iterable[Member]:
    """Return the synced and live agents that report their configuration. An agent that joins later is
    given no units before it has the configuration that is then active.
    """
    for _, member in sorted(state.members.by_name.items()):
        here = member.state is MemberState.SYNCED and member.liveness is Liveness.ALIVE
        if here and member.config is not None:
            yield member


def _has_answered(reloading: Reloading, member: Member) -> bool:
    return member.file is not None and member.file.asked == reloading.number


def _list_refusals(reloading: Reloading, member: Member) -> list[Problem]:
    if member.file is None or not _has_answered(reloading, member):
        return []
    if member.file.problems:
        return [Problem(f"agent {member.name}: {line[:500]}") for line in member.file.problems[:LINES]]
    if member.file.digest == reloading.command.digest:
        return []
    digests = f"({member.file.digest[:40]}) than the coordinator's ({reloading.command.digest})"
    return [
        Problem(
            f"agent {member.name}: its file holds another configuration {digests}",
            "bring the same file to all machines, and reload again",
        )
    ]
