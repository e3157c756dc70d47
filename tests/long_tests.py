"""`python -m tests.long_tests JUNIT`: note which tests have a case that took long, of a run with
`--junitxml=JUNIT`.

`make test` leaves them out and `.ci/run` runs them (tests/turns.py). long_tests.txt lists them, a line
each: whole seconds, then the test. A test that is renamed is no longer one of them, so `make test` runs it
until the next measurement.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

#: Seconds that one case may take, with four processes on two cores.
LONG = 10.0
_ROOT = Path(__file__).parents[1]
_NOTED = Path(__file__).with_suffix(".txt")


def long_tests() -> frozenset[str]:
    """Return the tests, as node ids without a case."""
    return frozenset(line.split()[1] for line in _NOTED.read_text().splitlines())


def measured(junit: Path) -> dict[str, float]:
    """Return each test's node id without a case → the seconds of its longest case."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        test = _test(case.attrib["classname"], case.attrib["name"].partition("[")[0])
        found[test] = max(found.get(test, 0.0), float(case.attrib["time"]))
    return found


def _test(classname: str, function: str) -> str:
    """Return the node id of a test by pytest's name of its module or class."""
    parts = classname.split(".")
    for end in range(len(parts), 0, -1):
        module = Path(*parts[:end]).with_suffix(".py")
        if (_ROOT / module).is_file():
            return "::".join((module.as_posix(), *parts[end:], function))
    raise SystemExit(f"{classname}: no module of this tree has that name")


def main() -> None:
    found = sorted(
        (test, seconds) for test, seconds in measured(Path(sys.argv[1])).items() if seconds >= LONG
    )
    _NOTED.write_text("".join(f"{seconds:.0f} {test}\n" for test, seconds in found))


if __name__ == "__main__":
    main()
