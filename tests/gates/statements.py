"""How many statements the tests have for one of the product, docstrings left out (ADR 39).

The ratio is no target: a test that finds a wrong row is worth its statements. It may only fall, so that a
test that is written twice, or a stand-in that exists already, does not pass unseen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.gates.sources import Source


def count_statements(sources: Iterable[Source]) -> int:
    """Return how many statements there are, docstrings left out."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for each in sources for node in each.nodes)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
