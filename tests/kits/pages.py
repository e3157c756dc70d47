"""What pages of the docs name, and what modules define."""

from __future__ import annotations

import ast
from pathlib import Path


def defined(path: Path) -> set[str]:
    """The names of classes, functions, methods and constants of a module."""
    tree = ast.parse(path.read_text())
    found = {
        n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    return found | {t.id for t in targets if isinstance(t, ast.Name)}
