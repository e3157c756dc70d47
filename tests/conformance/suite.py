"""How a module takes the tests of a suite; the fixtures that they name are its own."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any


def suite(*modules: ModuleType) -> dict[str, Any]:
    """Return the tests of `modules` by name; no two may have one name, for one of them would not run."""
    found: dict[str, Any] = {}
    for module in modules:
        mine = {name: each for name, each in vars(module).items() if name.startswith("test_")}
        assert not found.keys() & mine.keys()
        found |= mine
    return found


def parse_tests(path: Path) -> ast.Module:
    """Return the code of a test module, and after it that of the suite of its name, if there is one."""
    tree = ast.parse(path.read_text())
    own_suite = Path(__file__).with_name(path.name.removeprefix("test_"))
    if own_suite.exists():
        tree.body += ast.parse(own_suite.read_text()).body
    return tree
