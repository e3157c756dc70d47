"""Mutants of versions: who reports which, and what does not run under another one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OWNER = ("tests/unit/test_coordinator_owner.py",)
_AGENT = ("tests/unit/test_coordinator_agent.py",)
_SHOWN = ("tests/unit/test_placement.py", "tests/unit/test_cli_coordination.py")
_CHILDREN = ("tests/unit/test_local_workers.py",)

MUTANTS = [
    Mutant(
        "coordinator/core/members.py",
        "version=message.version[:LONGEST_VERSION]",
        "version=message.version",
        _OWNER,
    ),
    Mutant(
        "coordinator/core/members.py",
        "replace(member, version=message.version[:LONGEST_VERSION])",
        "member",
        _OWNER,
    ),
    Mutant(
        "coordinator/core/agent.py",
        "state.liveness, state.config, state.version)",
        "state.liveness, state.config)",
        _AGENT,
    ),
    Mutant(
        "rowlock/inspect/observed/versions.py",
        'if version is not None and agent["state"] != "registered"',
        "if version is not None",
        _SHOWN,
    ),
    Mutant(
        "rowlock/inspect/observed/versions.py",
        'if version is not None and agent["state"]',
        'if agent["state"]',
        _SHOWN,
    ),
    Mutant(
        "rowlock/inspect/observed/versions.py",
        'str(leader.get("version") or BEFORE)',
        'str(leader.get("version"))',
        _SHOWN,
    ),
    Mutant("rowlock/processes/child.py", "    if parent in (None, mine):\n", "    if True:\n", _CHILDREN),
    Mutant("rowlock/processes/child_process.py", " | {PARENT_VERSION: __version__}", "", _CHILDREN),
    Mutant(
        "rowlock/agent/apply.py",
        'self._end_lost_units(self._error or f"the apply',
        'self._end_lost_units(f"the apply',
        _CHILDREN,
    ),
]
