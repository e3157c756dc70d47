"""What `make release` checks before it builds; the build itself is run by .ci/run."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tools.release import (
    ReleaseError,
    check_tag,
    check_version,
    foreign_files,
    list_hashes,
    missing_files,
    pack_site,
)

ROOT = Path(__file__).resolve().parents[2]

RELEASED = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n## [0.1.0] - 2026-11-27\n"


def test_the_newest_released_section_is_the_version():
    check_version(RELEASED, "0.2.0")


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0"])
def test_another_version_than_the_newest_section_is_refused(version):
    with pytest.raises(ReleaseError, match=r"newest section of CHANGELOG\.md is 0\.2\.0"):
        check_version(RELEASED, version)


def test_a_changelog_without_a_release_is_refused():
    with pytest.raises(ReleaseError, match="is none"):
        check_version("# Changelog\n\n## [Unreleased]\n", "0.1.0")


def test_a_development_version_needs_a_section_for_unreleased_changes():
    check_version(RELEASED, "0.3.0.dev0")
    with pytest.raises(ReleaseError, match=r"no section \[Unreleased\]"):
        check_version(RELEASED.replace("[Unreleased]", "[0.3.0]"), "0.3.0.dev0")


@pytest.mark.parametrize("tags", [[], ["v0.1.0", "0.2.0"]])
def test_a_release_needs_the_tag_of_its_version(tags):
    with pytest.raises(ReleaseError, match=r"not the tag v0\.2\.0 .* `git tag v0\.2\.0`"):
        check_tag("0.2.0", tags)
    check_tag("0.2.0", [*tags, "v0.2.0"])


def test_a_development_version_needs_no_tag():
    check_tag("0.3.0.dev0", [])


def test_the_whole_check_tries_a_release_before_its_tag_is_set():
    assert "make release ARGS=--untagged\n" in (ROOT / ".ci" / "run").read_text()
    assert "python -m tools.release $(ARGS)\n" in (ROOT / "Makefile").read_text()


def test_the_site_is_packed_into_a_folder_of_its_own(tmp_path):
    page = tmp_path / "site" / "docs" / "start-over.html"
    page.parent.mkdir(parents=True)
    page.write_text("x")
    pack_site(tmp_path / "site", tmp_path / "site-0.2.0.tar.gz")
    with tarfile.open(tmp_path / "site-0.2.0.tar.gz") as archive:
        names = [each.name for each in archive.getmembers() if each.isfile()]
    assert names == ["site-0.2.0/docs/start-over.html"]


def test_committed_files_that_an_archive_lacks_are_listed():
    committed = ["rowlock/cli.py", "schemas/envelope.v1.schema.json", "consumer/py.typed", "docs/x.md"]
    committed += ["tests/x.py", "schemas/golden/v1/c.json"]
    assert missing_files(["rowlock/cli.py"], committed) == [
        "consumer/py.typed",
        "schemas/envelope.v1.schema.json",
    ]
    assert missing_files(committed, committed) == []


def test_a_page_or_a_style_of_the_site_is_not_left_out():
    site = ["rowlock/site/docs/how-to/start-over.html", "rowlock/site/_static/styles/furo.css"]
    assert missing_files(site[:1], site) == site[1:]


def test_a_wheel_contains_the_packages_and_nothing_else():
    own = ["rowlock/cli.py", "schemas/envelope.v1.schema.json", "rowlock-0.2.0.dist-info/METADATA"]
    assert foreign_files(own) == []
    assert foreign_files([*own, "bench/kit.py", "peers/judge.py"]) == ["bench/kit.py", "peers/judge.py"]


def test_each_installed_file_is_listed_with_its_hash():
    def installed(name: str, digest: str) -> dict[str, object]:
        return {"metadata": {"name": name, "version": "1.2"},
                "download_info": {"archive_info": {"hashes": {"sha256": digest}}}}  # fmt: skip

    report = {"install": [installed("pyspark", "b1"), installed("rowlock", "c2"), installed("Click", "a0")]}
    first, *lines = list_hashes(report).splitlines()
    assert first.startswith("# Python 3.")
    assert lines == ["Click==1.2 --hash=sha256:a0", "pyspark==1.2 --hash=sha256:b1"]
