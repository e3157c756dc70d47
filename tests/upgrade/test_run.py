"""`rowlock run` of an earlier version is stopped within a snapshot, an ALTER and with rows in quarantine, and
continued by this one; and back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock import __version__
from tests.kits.running import HERE, Program
from tests.kits.waiting import until
from tests.upgrade.releases import Release, earlier_releases, installed
from tests.upgrade.system import BIG_ROWS, CHUNK, TABLES, UpgradedRun, system

pytestmark = pytest.mark.timeout(1800)

SMALL = tuple(table for table in TABLES if table not in ("big", "acct"))
"""Tables that are at rest whenever they are compared."""
TOO_LONG = "too long for it"


def altered_but_blocked(tried: UpgradedRun, column: str) -> contextlib.ExitStack:
    """Add a column at the sources while the targets' tables are locked; returns once both units wait, with
    the locks."""
    locks = contextlib.ExitStack()
    for route in tried.routes:
        locks.enter_context(route.locked_target())
    number = len(tried.routes[0].source_rows("altered")) + 1
    tried.change(
        f"ALTER TABLE altered ADD COLUMN {column} INT NOT NULL DEFAULT 7",
        f"INSERT INTO altered (id, note, {column}) VALUES ({number}, 'after {column}', {number})",
    )
    tried.each(lambda route: route.waits_for_the_lock(), f"the ALTER that adds {column} waits for its lock")
    return locks


def reject(tried: UpgradedRun, program: Program, key: int, then: str) -> list[dict[str, Any]]:
    """Write a row that the targets reject, and once it is held another note, which has to wait; return the
    quarantine."""
    tried.change(f"INSERT INTO narrow VALUES ({key}, '{TOO_LONG}')")
    held(tried, program, lambda keys: keys.get(key) == 2)
    tried.change(f"UPDATE narrow SET note = '{then}' WHERE id = {key}")
    return held(tried, program, lambda keys: keys.get(key) == 4)


def keys_of(held: list[dict[str, Any]]) -> dict[int, int]:
    """Return the keys that are held, each with the number of its entries in both pipelines."""
    found: dict[int, int] = {}
    for each in held:
        (key,) = json.loads(each["key"]) if each["key"].startswith("[") else (each["key"],)
        found[int(key)] = found.get(int(key), 0) + 1
    return found


def held(
    tried: UpgradedRun, program: Program, expected: Callable[[dict[int, int]], bool]
) -> list[dict[str, Any]]:
    """Await what the quarantine holds; return it."""
    seen: list[dict[str, Any]] = []

    def as_expected() -> bool:
        seen[:] = tried.held(program)
        return expected(keys_of(seen))

    until(as_expected, f"the quarantine; see {tried.log}", 300)
    return seen


def nothing_stopped(tried: UpgradedRun) -> None:
    shown = tried.asked(HERE, "status", "--output", "json")
    assert {unit["state"] for unit in shown["units"]} <= {"current", "behind", "new"}, shown
    assert [source["tables"] for source in shown["sources"]] == [[], []], shown
    assert shown["problems"] == [], shown


@pytest.mark.parametrize("release", earlier_releases(), ids=lambda each: each.version)
def test_a_run_is_continued_by_this_version_and_by_the_earlier_one(
    release: Release, kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str,
    tmp_path: Path
) -> None:  # fmt: skip
    old = installed(release)
    with system(kafka, mariadb, mysql, postgres, unique, tmp_path) as tried:
        for route in tried.routes:
            route.load.start()
        begun = _stopped_within_everything(tried, old)
        continued = _continued(tried, begun)
        _and_back(tried, old, *continued)
        _to_the_end(tried)


def _stopped_within_everything(tried: UpgradedRun, old: Program) -> list[dict[str, Any]]:
    """Run the earlier version into all situations and kill it; return what it holds in quarantine."""
    tried.start(old)
    tried.each(lambda route: route.copied() >= CHUNK, "the first chunk of the snapshot")
    tried.equal(*SMALL)
    tried.change(*(f"INSERT INTO narrow VALUES ({key}, '{TOO_LONG}')" for key in (10, 11)))
    tried.change(f"UPDATE narrow SET id = 21, note = '{TOO_LONG}' WHERE id = 20")
    held(tried, old, lambda keys: (keys.get(10), keys.get(11)) == (2, 2) and 21 in keys)
    begun = reject(tried, old, 12, "ok12")
    with altered_but_blocked(tried, "extra"):
        tried.kill()
        assert all(route.is_altering("extra") for route in tried.routes)
    assert tried.is_in_the_middle()
    tried.change("INSERT INTO typed VALUES (4, 'b', 'y', NULL, NULL, 4)", "DELETE FROM typed WHERE id = 2")
    return begun


def _continued(tried: UpgradedRun, begun: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Continue with this version; kill it in the same situations. Returns what it holds, and the rows of
    `big` that have arrived."""
    before = min(route.copied() for route in tried.routes)
    tried.start(HERE)
    tried.equal("altered", "typed")
    tried.each(lambda route: route.copied() > before, "the next chunk of the snapshot")
    assert keys_of(begun).keys() >= {10, 11, 12, 21}
    held(tried, HERE, lambda keys: keys.keys() >= {10, 11, 21} and 12 not in keys)  # 12 fits, and recovers
    nothing_stopped(tried)
    versions = {
        each["kind"]: each["version"] for each in tried.asked(HERE, "status", "--output", "json")["versions"]
    }
    assert versions == {"coordinator": __version__, "agent": __version__}
    _entries_of_the_earlier_version(tried)
    now = reject(tried, HERE, 13, f"{TOO_LONG}, too")
    with altered_but_blocked(tried, "more"):
        tried.kill()
        assert all(route.is_altering("more") for route in tried.routes)
    assert tried.is_in_the_middle()
    tried.change(
        "INSERT INTO typed VALUES (5, 'c', 'x,y,z', NULL, NULL, 5)",
        "UPDATE typed SET tags = 'z' WHERE id = 1",
    )
    return now, min(route.copied() for route in tried.routes)


def _entries_of_the_earlier_version(tried: UpgradedRun) -> None:
    """Apply what fits by now, skip one key, and leave nothing held of what the earlier version has
    written."""
    tried.change("UPDATE narrow SET note = 'ok10' WHERE id = 10")
    entries = held(tried, HERE, lambda keys: 10 not in keys)
    assert tried.resolve(HERE, "retry") == 1, "11 and 21 do not fit"
    assert keys_of(tried.held(HERE)).keys() <= {11, 20, 21}
    skipped = next(each["key"] for each in entries if keys_of([each]) == {11: 1})
    assert tried.resolve(HERE, "skip", "--key", skipped, "--yes") == 0
    tried.change(
        "UPDATE narrow SET note = 'ok11' WHERE id = 11", "UPDATE narrow SET note = 'ok21' WHERE id = 21"
    )
    held(tried, HERE, lambda keys: 21 not in keys)
    assert tried.resolve(HERE, "retry") == 0
    tried.equal("narrow")


def _and_back(tried: UpgradedRun, old: Program, now: list[dict[str, Any]], before: int) -> None:
    """Let the earlier version continue what this one has left, and stop it cleanly within the snapshot."""
    tried.start(old)
    tried.equal("altered", "typed")
    tried.each(lambda route: route.copied() > before, "the next chunk of the snapshot")
    assert held(tried, old, lambda _: True) == now
    tried.change("UPDATE narrow SET note = 'ok13' WHERE id = 13")
    held(tried, old, lambda keys: keys.get(13) == 6)
    assert tried.resolve(old, "retry") == 0
    tried.equal("narrow")
    reject(tried, old, 14, "ok14")
    tried.stop()
    assert tried.is_in_the_middle()


def _to_the_end(tried: UpgradedRun) -> None:
    """Let this version continue once more, until everything has arrived: all rows are equal, nothing is held,
    nothing has stopped."""
    for route in tried.routes:
        route.proxy.go_on()
        route.load.finish()
        assert route.load.count > 0
    assert tried.resolve(HERE, "retry") == 0
    caught_up = HERE.call("run", "--until-caught-up", "-c", str(tried.config), seconds=600)
    assert caught_up.returncode == 0, caught_up.stderr[-3000:]  # a table that has stopped is an error here
    assert tried.held(HERE) == []
    compared = HERE.call("verify", "--output", "json", "-c", str(tried.config))
    verdicts = [json.loads(line) for line in compared.stdout.splitlines()]
    assert len(verdicts) == len(tried.routes) * len(TABLES)
    assert all(each["equal"] for each in verdicts), compared.stdout
    for route in tried.routes:
        for table in TABLES:
            assert route.target_rows(table) == route.source_rows(table), (route.name, table)
        assert route.copied() == BIG_ROWS
