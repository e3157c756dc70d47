"""Mutants of a reload: what is in force, who has it, what is placed anew, and what is handed on."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CORE = ("tests/unit/test_reload_core.py",)
_MODEL = ("tests/unit/test_reload_mixture.py",)
_SERVER = ("tests/unit/test_reload_server.py",)
_CHANGES = ("tests/unit/test_config_changes.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _CORE) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


_IN_FORCE = "coordinator/core/owner/configuration.py"

MUTANTS = [
    *_of(
        _IN_FORCE,
        ("    return any(replica.assignment < since for replica in current.replicas)", "    return False"),
        ("    if refusals:\n", "    if False:\n"),
        ("or member.config == version(state)", "or member.config.digest == state.configuration.digest"),
        ("    state.adopted = state.work = True", "    state.work = True"),
    ),
    *_of(
        _IN_FORCE,
        ("    return member.accepts and in_force(state, member)", "    return member.accepts"),
        (
            "    differ = changed | {part for part, now_is in parts.items() if before.get(part) != now_is}",
            "    differ = changed",
        ),
        tests=_MODEL,
    ),
    *_of(
        "coordinator/core/owner/catalogue.py", ("_list_unchanged_pipelines(before, event))", "event.sources)")
    ),
    *_of(
        "coordinator/core/agent.py",
        (
            "    elif message.config != state.taking or now >= state.take_at:",
            "    elif message.config != state.taking:",
        ),
    ),
    *_of(
        "coordinator/server/terms/term.py",
        (
            "            self._commands.await_durable(ended.token, asked)",
            "            asked.answer.give(None)",
        ),
        tests=_SERVER,
    ),
    *_of(
        "consumer/process/shells.py",
        ("            pipeline = replace(pipeline, state_dir=", "            replace(pipeline, state_dir="),
        ("        for name in changed & set(self._now):", "        for name in set[str]():"),
        tests=_SERVER,
    ),
    *_of(
        "rowlock/inspect/planned/plan.py",
        ("source.known - taken_out - set(source.selected)", "source.known - set(source.selected)"),
        tests=_SERVER,
    ),
    *_of(
        "rowlock/agent/configuration.py",
        ("        if self.digest == wanted:\n", "        if False:\n"),
        (
            "        return compute_config_digest(found), planned.refused",
            "        return compute_config_digest(found), ()",
        ),
        tests=_CHANGES,
    ),
    *_of(
        "schemas/config/changes/plan.py",
        ("if before.get(part) != sections}", "if part not in before}"),
        ("hidden=field.repr is False\n", "hidden=False\n"),
        tests=_CHANGES,
    ),
    *_of(
        "schemas/config/changes/handed.py",
        ("    secrets = handed.secrets\n", "    secrets = dict[str, str]()\n"),
        tests=_CHANGES,
    ),
]
