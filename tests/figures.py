"""How large the house is, and what has to be read to follow one row: `python -m tests.figures [--rows]`.

Without `--rows` only the tree is read. With it Kafka, MariaDB and PostgreSQL are started, and rows are
followed through both halves as tests/integration/test_the_way_of_a_row.py does: which files have a function
that ran, which functions, and how many calls a row took.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy")
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
#: The processes that start a unit → the module of each.
PROCESSES = {
    "coordinator": "rowlock.coordinator.run",
    "agent": "rowlock.agent.run",
    "capture": "producer.main",
    "apply": "consumer.main",
}
FEW, MANY = 50, 2_000
"""Rows followed into the target: in one transaction for all lanes, and laned (consumer's SMALL_BATCH is
between)."""


def sources(*folders: str) -> list[Path]:
    """Return the Python files of the repository's `folders`, as git knows them: nothing generated counts."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith(".py") and (ROOT / name).exists()]


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def classes() -> Iterator[tuple[Path, ast.ClassDef, bool]]:
    """Yield every class of the product, and whether it stands on its module's top."""
    for file in sources(*PRODUCT):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield file, node, node in tree.body


def state(node: ast.ClassDef) -> int:
    """Return how many attributes the methods of a class set besides `__init__`."""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    return len(
        {
            each.attr
            for method in methods
            if method.name not in {"__init__", "__post_init__"}
            for each in ast.walk(method)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            if isinstance(each.value, ast.Name) and each.value.id == "self"
        }
    )


def steps(heading: str) -> list[str]:
    """Return the files that the page names under `heading`, in order, each once."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{PAGE.name} has no heading {heading!r}")
    return list(dict.fromkeys(re.findall(r"^\| \d+ \| `([^`]+)`", found[1], re.MULTILINE)))


def loaded(module: str) -> list[str]:
    """Return the product's modules that importing `module` loads, in a process of its own."""
    code = (
        f"import {module}, json, sys; print(json.dumps([n for n in sys.modules if "
        f"n.split('.')[0] in {PRODUCT!r}]))"
    )
    reported = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    names: list[str] = json.loads(reported)
    return names


def tree() -> dict[str, Any]:
    """Return the figures that the tree alone gives."""
    names = Counter(node.name for _, node, top in classes() if top and not node.name.startswith("_"))
    by_lines = max(classes(), key=lambda each: (each[1].end_lineno or 0) - each[1].lineno)
    by_methods = max(classes(), key=lambda each: sum(isinstance(n, ast.FunctionDef) for n in each[1].body))
    by_state = max(classes(), key=lambda each: state(each[1]))
    folders = Counter(
        file.parent.relative_to(ROOT).as_posix() for file in sources(*PRODUCT) if file.name != "__init__.py"
    )
    return {
        "product lines": lines(sources(*PRODUCT)),
        "test lines": lines(sources("tests")),
        "product files": len(sources(*PRODUCT)),
        "class names defined more than once": sum(times > 1 for times in names.values()),
        "class of most lines": f"{by_lines[1].name}: {(by_lines[1].end_lineno or 0) - by_lines[1].lineno + 1}",  # noqa: E501
        "class of most methods": f"{by_methods[1].name}: "
        f"{sum(isinstance(n, ast.FunctionDef) for n in by_methods[1].body)}",
        "class of most state set after __init__": f"{by_state[1].name}: {state(by_state[1])}",
        "fullest folder": "{}: {} modules".format(*folders.most_common(1)[0]),
        "files on the page's way of a row": len(steps("The way of a row")),
        "lines of these files": lines([ROOT / name for name in steps("The way of a row")]),
        "files on the page's way of a unit": len(steps("The way of a unit")),
        **{
            f"modules that the {name} process loads": len(loaded(module))
            for name, module in PROCESSES.items()
        },
    }


class Calls:
    """Counts calls of the product's functions in this and all later threads, in place of the tracer of the
    test that it is put into."""

    def __init__(self, tracer: type[Any]) -> None:
        self.counted: Counter[str] = Counter()
        counted = self.counted

        class Counting(tracer):  # type: ignore[misc]
            def forget_order(self) -> None:
                counted.clear()
                super().forget_order()

            def _profile(self, frame: FrameType, event: str, argument: object) -> None:
                path = frame.f_code.co_filename
                if event == "call" and path.startswith(str(ROOT)):
                    counted[f"{os.path.relpath(path, ROOT)}: {frame.f_code.co_qualname}"] += 1
                super()._profile(frame, event, argument)

        self.kind = Counting

    def figures(self, packages: tuple[str, ...], rows: int) -> dict[str, Any]:
        """Return files and functions that ran, and calls a row; `hot`: the files with a function that runs
        for (nearly) every row."""
        mine = {
            name: times
            for name, times in self.counted.items()
            if name.startswith(packages) and "<" not in name.split(": ")[1]
        }
        files: dict[str, int] = defaultdict(int)
        for name, times in mine.items():
            files[name.split(": ")[0]] = max(files[name.split(": ")[0]], times)
        return {
            "files": len(files),
            "lines of these files": lines([ROOT / name for name in files]),
            "functions": len(mine),
            "calls a row": round(sum(mine.values()) / rows, 1),
            "files with a function for every row": sum(times >= rows * 0.9 for times in files.values()),
        }


def rows() -> dict[str, Any]:
    """Return what rows touch on their way into Kafka, and from there into the target, few and many of them at
    once."""
    from consumer.ordering.lanes.lane import LaneLimits
    from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
    from schemas.wire.records import format_former_table_topic
    from tests.integration import test_the_way_of_a_row as way
    from tests.kits.capture import messages

    calls = Calls(way.Tracer)
    vars(way)["Tracer"] = calls.kind
    found: dict[str, Any] = {}
    kafka, source, target = Kafka(), MariaDB(), PostgreSQL()
    with tempfile.TemporaryDirectory() as folder, combine_services(kafka, source, target):
        source.create_database("figures")
        source.execute("CREATE TABLE figures.acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
        kept, rows = Path(folder), (1 + way.FEW + way.MANY) * way.ROWS
        way.follow_capture(kafka, source, "figures", kept)
        found["binlog → Kafka"] = calls.figures(("producer/", "schemas/"), rows)
        topic = format_former_table_topic("figures", "s", "figures", "acct")
        records = [(each.offset(), each.value()) for each in messages(kafka.bootstrap, topic)]
        for name, part in (("short", records[: FEW + len(records) - rows]), ("laned", records)):
            target.create_database(name)
            (kept / name).mkdir()
            calls.counted.clear()
            way.apply_tasks(target, name, topic, [[part]], kept / name, LaneLimits())
            found[f"Kafka → target, {name}"] = calls.figures(("consumer/", "schemas/"), min(len(part), rows))
    return found


def show(title: str, figures: dict[str, Any], out: Callable[[str], object] = print) -> None:
    out(f"{title}")
    for name, value in figures.items():
        out(f"  {name}: {value}")


if __name__ == "__main__":
    show("tree", tree())
    if "--rows" in sys.argv[1:]:
        for title, figures in rows().items():
            show(title, figures)
