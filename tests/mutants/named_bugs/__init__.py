"""Bugs that rowlock must never have: each is a change of the product, with the tests that find it.

Generated mutants (`tests.mutants.generated`) cannot make most of them: those change one operator, number or
call, and not the order of two statements, a column of a query or a part of a text.
"""

from __future__ import annotations

import random

from tests.mutants.mutant import Mutant
from tests.mutants.named_bugs import capture, coordination, copies, definitions, order, targets

NAMED_BUGS: list[Mutant] = [
    *order.BUGS,
    *copies.BUGS,
    *definitions.BUGS,
    *targets.BUGS,
    *capture.BUGS,
    *coordination.BUGS,
]
SAMPLE_SIZE = 20


def draw_sample(seed: int) -> list[Mutant]:
    """Return SAMPLE_SIZE of the named bugs, the same ones for a seed. None of them needs a service."""
    return random.Random(seed).sample(NAMED_BUGS, SAMPLE_SIZE)
