"""docs/releases.md names the versions that a system is upgraded from."""

from __future__ import annotations

import subprocess

import pytest

from tests.upgrade.releases import ROOT, Release, installed, listed, to_try

PAGE = """\
# Releases

| version | date | commit | notes |
|---|---|---|---|
| 0.2.0 | 2027-01-01 | 2222222 | |
| 0.1.0 | 2026-12-01 | 1111111 | the first |
| 0.0 | 2026-11-27 | 0000000 | |
"""


def test_the_newest_releases_but_the_present_commit_are_tried() -> None:
    releases = listed(PAGE)
    assert releases == [Release("0.2.0", "2222222"), Release("0.1.0", "1111111"), Release("0.0", "0000000")]
    assert to_try(releases, "3" * 40) == releases[:2]
    assert to_try(releases, "2" * 40) == releases[1:]
    assert to_try(releases, None) == releases[:2]


@pytest.mark.parametrize("row", ["| 0.3.0 | 2027-02-01 | |", "| 0.3.0 | 2027-02-01 | | notes |"])
def test_a_row_without_a_commit_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r"docs/releases\.md"):
        listed(f"{PAGE}{row}\n")


def test_each_release_of_the_page_is_in_the_history() -> None:
    releases = listed((ROOT / "docs/releases.md").read_text())
    assert releases
    for release in releases:
        if subprocess.run(
            ["git", "-C", str(ROOT), "cat-file", "-e", "HEAD~1"], check=False, capture_output=True
        ).returncode:
            pytest.skip("a clone without the history")
        found = ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", release.commit, "HEAD"]
        assert subprocess.run(found, check=False).returncode == 0, release


def test_a_missing_history_skips_the_upgrade_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Release("9.9", "f" * 40)
    monkeypatch.delenv("ROWLOCK_REQUIRE_HISTORY", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"version 9\.9 is not in this clone"):
        installed(lost)
    monkeypatch.setenv("ROWLOCK_REQUIRE_HISTORY", "1")
    with pytest.raises(pytest.fail.Exception, match="clone with the whole history"):
        installed(lost)
