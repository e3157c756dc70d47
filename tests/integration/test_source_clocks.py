"""The time up to which a source is captured is that of its server, whatever the clock of the capture is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from producer.sources.catalog import open_catalog
from schemas.config.model import SourceConfig
from tests.kits.capture import source
from tests.kits.moved_clock import MovedClock
from tests.kits.sources import ServerSite
from tests.kits.sources import site as site
from tests.kits.waiting import until


def now_ms() -> int:
    """Return the time of the server, which runs on this machine."""
    return int(time.time() * 1000)


@pytest.mark.parametrize("zone", ["+00:00", "-05:00", "+13:00"])
def test_the_time_of_a_server_is_that_of_its_clock(zone: str, site: ServerSite) -> None:
    config = SourceConfig.model_validate(source(site.database, [f"{site.db}.*"]))
    catalog: Any = open_catalog(config)
    catalog.session.run_query(f"SET SESSION time_zone = '{zone}'")
    before = now_ms()
    assert before - 1 <= catalog.server.read_time_ms() <= now_ms()
    catalog.close()


@pytest.mark.parametrize("ahead_s", [600, -600])
def test_no_time_is_later_than_a_commit_that_is_not_captured(
    ahead_s: int, site: ServerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "clock").mkdir()
    clock = MovedClock(folder)
    clock.move(ahead_s)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    returned: dict[int, int] = {}

    def put(version: int) -> None:
        site.put("a", version, 1)
        returned[version] = now_ms()
        time.sleep(0.3 * (version % 3))

    def idle() -> None:
        last = site.watermarks()[-1].commit_ts_ms
        until(lambda: site.watermarks()[-1].commit_ts_ms > last + 2000, "an idle source goes on")

    site.run(*[lambda version=version: put(version) for version in range(1, 25)], idle)
    ended = now_ms()
    places = {event.after["version"]: event.source.position for event in site.events("a") if event.after}
    marks = site.watermarks()
    assert len(places) == 24
    for mark in marks:
        late = [each for each, place in places.items() if place > mark.position and each in returned]
        assert all(mark.commit_ts_ms <= returned[each] for each in late), (mark, late)
        assert mark.commit_ts_ms <= ended
    assert any(mark.idle for mark in marks)
    assert site.position().ts_ms <= ended
