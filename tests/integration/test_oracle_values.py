"""Every row of Oracle's type table, as a value of a source's event, into each target: held as it is and read
back, or refused with the reason.

`python -m tests.integration.test_oracle_values FILE` writes tests/golden/oracle_held.jsonl from what each
test left in FILE (ROWLOCK_HELD=FILE): what the servers themselves show, to be looked at by anyone who
changes it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from consumer.targets.kafka.formats import FORMATS
from deploy.embedded.services import Kafka
from tests.kits.oracle_values import GOLDEN, KINDS, cases, held, in_topic, name_of, shortened, value_of
from tests.kits.targets import Target, targets

pytestmark = pytest.mark.timeout(300)
HELD = GOLDEN / "oracle_held.jsonl"
target = targets(*KINDS)


def golden(place: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in HELD.read_text().splitlines()]
    return {line["name"]: line[place] for line in lines if place in line}


def judge(place: str, found: dict[str, Any]) -> None:
    if file := os.environ.get("ROWLOCK_HELD"):
        with Path(file).open("a") as out:
            out.write(json.dumps([place, found]) + "\n")
        return
    assert found == golden(place)


def test_each_value_is_held_or_refused(target: Target) -> None:
    session = target.open()
    judge(target.kind, {name_of(case): shortened(held(target, session, case)) for case in cases()})


@pytest.mark.parametrize("word", sorted(FORMATS))
def test_each_value_is_in_a_topic(kafka: Kafka, unique: str, word: str) -> None:
    """Only what is not written as it stands in the event is in the golden file."""
    found = in_topic(kafka, unique, word)
    other = {
        name_of(case): value if not isinstance(value, str) else shortened(value)
        for case in cases()
        if repr(value := found[case["at"]]) != repr(value_of(case))
    }  # fmt: skip
    judge(word, other)


def written(file: Path) -> list[str]:
    places = dict(json.loads(line) for line in file.read_text().splitlines())
    lines = []
    for case in cases():
        name = name_of(case)
        lines.append(
            {"name": name, **{place: found[name] for place, found in places.items() if name in found}}
        )
    return [json.dumps(line, ensure_ascii=False) for line in lines]


if __name__ == "__main__":
    print("\n".join(written(Path(sys.argv[1]))))
