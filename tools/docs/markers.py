"""Replaces the generated parts of a page, which are between markers."""

from __future__ import annotations

import re
from collections.abc import Mapping


def fill_markers(page: str, texts: Mapping[str, str]) -> str:
    """Return the page with the text of each name between the markers of that name. Raises ValueError."""
    for name, text in texts.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(page):
            raise ValueError(f"the page has no <!-- {name} --> … <!-- /{name} --> → add both markers")
        page = pattern.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
    return page
