"""Settings of the documentation's site, which `make docs` builds into build/site/ from the pages of the tree.

Sphinx reads the pages from the root of the repository, so that a relative link leads to the same place in a
clone and in the site. A link to a file that is no page (a configuration, a module) downloads it there.
"""

from __future__ import annotations

import re

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "rowlock"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["README*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**"]
exclude_patterns = [".*", "build", "dist"]
myst_heading_anchors = 4
html_theme = "furo"
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}
html_title = "rowlock"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False


def add_contents(_: Sphinx, name: str, text: list[str]) -> None:
    """Append to an index page the table of contents that Sphinx needs.

    Its pages are those that the first cells of the page's own tables link to.
    """
    if name.endswith("/README"):
        pages = re.findall(r"^\| \[[^]]+\]\(([^)#]+\.md)\)", text[0], re.MULTILINE)
        text[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.add_lexer("mermaid", TextLexer)
