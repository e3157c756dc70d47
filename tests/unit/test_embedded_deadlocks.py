"""A statement of the demo and of tests that loses a deadlock is run again; no other error is."""

from __future__ import annotations

import pymysql
import pytest

from deploy.embedded.service import retry_deadlocks


def _is_deadlock(error: Exception) -> bool:
    return error.args[:1] == (1213,)


@pytest.mark.parametrize(("errors", "tries"), [([], 1), ([1213], 2), ([1213] * 19, 20)])
def test_a_deadlock_is_tried_again(errors: list[int], tries: int) -> None:
    left, made = list(errors), []

    def run() -> str:
        made.append(1)
        if left:
            raise pymysql.err.OperationalError(left.pop(), "…")
        return "done"

    assert retry_deadlocks(run, _is_deadlock) == "done"
    assert len(made) == tries


@pytest.mark.parametrize(("code", "tries"), [(1205, 1), (1213, 20)])
def test_other_errors_and_the_last_deadlock_are_raised(code: int, tries: int) -> None:
    made = []

    def run() -> None:
        made.append(1)
        raise pymysql.err.OperationalError(code, "…")

    with pytest.raises(pymysql.err.OperationalError):
        retry_deadlocks(run, _is_deadlock)
    assert len(made) == tries
