"""Bugs of the coordinator, of processes and configurations, and of stored and exchanged formats."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUGS = [
    Mutant(
        bug="units keep running under the configuration from before a reload",
        file="coordinator/core/leader/configuration.py",
        old="    return any(replica.assignment < since for replica in current.replicas)",
        new="    return False",
        tests=("tests/unit/test_reload_core.py",),
    ),
    Mutant(
        bug="an agent with an older revision of the configuration counts as up to date",
        file="coordinator/core/leader/configuration.py",
        old="member.config == get_active_version(state)\n",
        new="member.config.digest == state.configuration.record.digest\n",
        tests=("tests/unit/test_reload_core.py",),
    ),
    Mutant(
        bug="an agent without the configuration in force is given units",
        file="coordinator/core/leader/configuration.py",
        old="return member.accepts and has_active_config(state, member)",
        new="return member.accepts",
        tests=("tests/unit/test_reload_mixture.py",),
    ),
    Mutant(
        bug="a reload is reported as done before it is stored",
        file="coordinator/server/terms/term.py",
        old="            self._commands.await_durable(ended.token, asked)",
        new="            asked.answer.give_value(None)",
        tests=("tests/unit/test_reload_server.py",),
    ),
    Mutant(
        bug="fencing a unit ends the process that fences it",
        file="consumer/slots/pool.py",
        old="slot.process != os.getpid() and is_running_here(slot)",
        new="is_running_here(slot)",
        tests=("tests/unit/test_slot_pool.py",),
    ),
    Mutant(
        bug="units of a lost slot go to another one under the same fencing token",
        file="consumer/slots/plan.py",
        old="                unit.set_serve(None)\n                out.append(UnitLost(place, epoch))",
        new="                pass",
        tests=("tests/unit/test_slots_together.py",),
    ),
    Mutant(
        bug="a unit with too many waiting records gets no turn any more",
        file="consumer/slots/schedule.py",
        old="if unit.add_records(records) else []\n        self._queue_if_due(unit, now)\n",
        new="if unit.add_records(records) else []\n",
        tests=("tests/unit/test_slots_together.py",),
    ),
    Mutant(
        bug="a changed pipeline shares the checkpoints of the one before",
        file="consumer/process/instructions.py",
        old="            pipeline = replace(pipeline, state_dir=",
        new="            replace(pipeline, state_dir=",
        tests=("tests/unit/test_reload_server.py",),
    ),
    Mutant(
        bug="a reload leaves pipelines under their old configuration",
        file="consumer/process/instructions.py",
        old="        for name in changed & set(self._now):",
        new="        for name in set[str]():",
        tests=("tests/unit/test_reload_server.py",),
    ),
    Mutant(
        bug="processes of two versions use different words for an instruction",
        file="schemas/units.py",
        old='    REMOVE = "remove"',
        new='    REMOVE = "removed"',
        tests=("tests/unit/test_stored_formats.py",),
    ),
    Mutant(
        bug="a stop in a topic is not read again after a restart",
        file="producer/start/topic_recovery.py",
        old=(
            'stop: TableStop | None = msgspec.field(name="stop", default=None)\n'
            '    copy: CopyMark | None = msgspec.field(name="copy", default=None)\n'
            "    log"
        ),
        new=(
            'stop: TableStop | None = msgspec.field(name="end", default=None)\n'
            '    copy: CopyMark | None = msgspec.field(name="copy", default=None)\n'
            "    log"
        ),
        tests=("tests/unit/test_stored_formats.py",),
    ),
    Mutant(
        bug="old readers take numbers of labels for labels",
        file="schemas/wire/event.py",
        old='NUMBERS_VERSION = "2.0"',
        new='NUMBERS_VERSION = "1.1"',
        tests=("tests/unit/test_label_numbers.py",),
    ),
    Mutant(
        bug="a child process goes on under a parent of another version",
        file="rowlock/processes/child.py",
        old="    if parent in (None, mine):\n",
        new="    if True:\n",
        tests=("tests/unit/test_local_workers.py",),
    ),
    Mutant(
        bug="an agent is told of a placement that is not stored",
        file="coordinator/core/replication.py",
        old="    if replica.durable:\n        out.append(Instruct(op",
        new="    if True:\n        out.append(Instruct(op",
        tests=("tests/unit/test_coordinator_replication.py",),
    ),
    Mutant(
        bug="a late message of an agent undoes a newer one",
        file="coordinator/core/members.py",
        old="    if seq <= member.seq:\n        return member, MessageVerdict.LATE\n",
        new="",
        tests=("tests/unit/test_coordinator_leader.py",),
    ),
    Mutant(
        bug="an agent keeps a unit that was given to another one",
        file="coordinator/core/replication.py",
        old="    if not known and event.state is not UnitPhase.ABSENT:\n",
        new="    if False:\n",
        tests=("tests/unit/test_coordinator_replication.py",),
    ),
    Mutant(
        bug="a wrong record in the control topic ends every term, and with it all replication",
        file="coordinator/core/leader/invariants.py",
        old='            _restrict_unit(state, unit, f"a stored record is wrong: {why}", current, out)\n',
        new="            state.claim.step_down()\n            out.append(StepDown(why))\n",
        tests=("tests/sim/coordination/test_restricted.py",),
    ),
    Mutant(
        bug="a violated invariant ends one term after the other",
        file="coordinator/core/leader/term_state.py",
        old="        return self.ends_on_violation and now >= self.began + lease\n",
        new="        return now >= self.began + lease\n",
        tests=("tests/unit/test_coordinator_invariants.py",),
    ),
    Mutant(
        bug="a term ends for a violation before its agents have leases of it",
        file="coordinator/core/leader/term_state.py",
        old="        return self.ends_on_violation and now >= self.began + lease\n",
        new="        return self.ends_on_violation\n",
        tests=("tests/unit/test_coordinator_invariants.py",),
    ),
    Mutant(
        bug="a unit that the leader leaves as it is loses its lease",
        file="coordinator/core/handlers/leases.py",
        old="granted = (*_list_granted(state, member), *_list_restricted(state, context.message))",
        new="granted = tuple(_list_granted(state, member))",
        tests=("tests/unit/test_coordinator_invariants.py",),
    ),
    Mutant(
        bug="units of an agent with a damaged record are placed elsewhere while it may still write them",
        file="coordinator/core/leader/steps.py",
        old='                found.setdefault(unit, f"that of its agent {name}: {why}")\n',
        new="                found.pop(unit, None)\n",
        tests=("tests/unit/test_coordinator_invariants.py",),
    ),
    Mutant(
        bug="a damaged record of a pause lets the unit run again",
        file="coordinator/core/leader/steps.py",
        old="            state.sets.paused[name] = None\n",
        new="            pass\n",
        tests=("tests/unit/test_coordinator_invariants.py",),
    ),
]
