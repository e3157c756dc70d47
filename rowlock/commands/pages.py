"""`rowlock docs`: the pages of the documentation that this installation has.

The wheel of a release has the site, which `tools/release.py` builds into it. A source tree, also one that is
installed with `pip install --editable`, has the pages as Markdown.
"""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rowlock.commands.options import fail_command

SITE = Path(__file__).resolve().parents[1] / "site"
"""The folder of the site; only a release has it."""
TREE = Path(__file__).resolve().parents[2]
"""The folder of the source tree, if the packages are in one."""


def list_pages() -> dict[str, Path]:
    """Return the files of the pages by name; none if this installation has neither site nor source tree."""
    if SITE.is_dir():
        folder, suffix = SITE, ".html"
    elif (TREE / "setup.cfg").is_file():
        folder, suffix = TREE, ".md"
    else:
        return {}
    files = [*folder.glob(f"*{suffix}"), *(folder / "docs").rglob(f"*{suffix}")]
    return {name_page(file.relative_to(folder)): file for file in sorted(files)}


def name_page(file: Path) -> str:
    """Return the name by which a page is asked for: that of its file, or of its folder for a README.

    The name of a page in Chinese is `zh/`, followed by the name of the English page.
    """
    *folders, name = file.with_suffix("").parts
    if name == "README" and folders:
        return folders[-1]
    return f"zh/{name}" if "zh" in folders else name


def find_page(name: str | None) -> Path:
    """Return the file of a page; without a name, of the first page. Ends the command if there is none."""
    pages = list_pages()
    if not pages:
        fail_command(
            f"this installation has no documentation: {SITE} does not exist, because its wheel was not built "
            "as a release; install the wheel of a release"
        )
    if name is None:
        return pages.get("index") or pages["docs"]
    found = next((file for known, file in pages.items() if known.lower() == name.lower()), None)
    if found is None:
        from rowlock.inspect.near_names import propose_names

        known = [page for page, file in pages.items() if file.parent.name != "adr"]  # decisions come last
        fail_command(f"the documentation has no page {name!r}; {propose_names(name, known or pages)}")
    return found


def _complete_page(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in list_pages() if name.startswith(begun)]


@click.command("docs")
@click.argument("page", required=False, shell_complete=_complete_page)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser, too.")
def show_page(page: str | None, opens: bool) -> None:
    """Print where a page of the documentation is on this machine.

    Without PAGE it is the first page, which leads to all others. Messages and remedies name pages, for
    example `rowlock docs start-over`. Pages in Chinese begin with zh/.
    """
    file = find_page(page)
    click.echo(file)
    if opens:
        import webbrowser

        if not webbrowser.open(file.as_uri()):
            fail_command("no browser was found; open the file above in one")
