"""`rowlock docs`: where the pages of the documentation are, in a wheel and in a source tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowlock.cli import main
from rowlock.commands import pages
from rowlock.commands.pages import list_pages, name_page

ROOT = Path(__file__).resolve().parents[2]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["docs", *words])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the site of a release, with empty pages."""
    folder = tmp_path / "site"
    for name in ("index", "README", "docs/README", "docs/how-to/tdsql", "docs/zh/README", "docs/zh/tdsql"):
        file = folder / f"{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    monkeypatch.setattr(pages, "SITE", folder)
    return folder


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ((), "index"),
        (("tdsql",), "docs/how-to/tdsql"),
        (("zh/tdsql",), "docs/zh/tdsql"),
        (("zh",), "docs/zh/README"),
        (("docs",), "docs/README"),
        (("readme",), "README"),
    ],
)
def test_path_of_a_page_of_the_site_is_printed(site: Path, words: tuple[str, ...], file: str) -> None:
    ended = invoke(*words)
    assert (ended.exit_code, ended.stdout) == (0, f"{site / file}.html\n")


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ((), "docs/README.md"),
        (("start-over",), "docs/how-to/start-over.md"),
        (("zh/tdsql",), "docs/zh/tdsql.md"),
        (("README.zh",), "README.zh.md"),
    ],
)
def test_a_source_tree_has_the_pages_as_markdown(words: tuple[str, ...], file: str) -> None:
    ended = invoke(*words)
    assert (ended.exit_code, ended.stdout) == (0, f"{ROOT / file}\n")


def test_each_page_of_the_tree_has_a_name_of_its_own() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(files) > 100
    assert sorted(list_pages().values()) == sorted(files)


def test_a_page_has_one_name_in_the_site_and_in_the_tree() -> None:
    names = [name_page(Path("docs/zh/first-report").with_suffix(suffix)) for suffix in (".md", ".html")]
    assert names == ["zh/first-report"] * 2


def test_an_unknown_page_is_refused_with_names_like_it() -> None:
    ended = invoke("target-setp")
    assert ended.exit_code == 2
    assert "has no page 'target-setp'; did you mean 'target-setup'" in ended.stderr
    assert "0001-" not in invoke("qqqq").stderr, "records of decisions are no first choice"


def test_a_wheel_without_the_site_names_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("of another package")
    monkeypatch.setattr(pages, "TREE", tmp_path)
    ended = invoke("start-over")
    assert ended.exit_code == 2
    assert "install the wheel of a release" in ended.stderr


@pytest.mark.parametrize(("has_browser", "code"), [(True, 0), (False, 2)])
def test_a_browser_opens_the_page_only_if_asked(
    site: Path, monkeypatch: pytest.MonkeyPatch, has_browser: bool, code: int
) -> None:
    opened: list[str] = []

    def open_address(address: str) -> bool:
        opened.append(address)
        return has_browser

    monkeypatch.setattr("webbrowser.open", open_address)
    assert invoke("tdsql").exit_code == 0
    assert opened == []
    ended = invoke("tdsql", "--open")
    assert ended.exit_code == code
    assert opened == [(site / "docs" / "how-to" / "tdsql.html").as_uri()]
    assert ended.stdout == f"{site / 'docs' / 'how-to' / 'tdsql.html'}\n"


def test_names_of_pages_are_completed(site: Path) -> None:
    asked = {"_ROWLOCK_COMPLETE": "bash_complete", "COMP_WORDS": "rowlock docs t", "COMP_CWORD": "2"}
    assert CliRunner().invoke(main, env=asked, prog_name="rowlock").stdout == "plain,tdsql\n"
