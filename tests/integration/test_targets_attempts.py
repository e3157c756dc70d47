"""The suite of attempts, on every kind of target, without Spark."""

from __future__ import annotations

from tests.conformance import targets_attempts
from tests.conformance.suite import suite
from tests.kits.attempts import reals
from tests.kits.targets import KINDS

real = reals(*KINDS)
globals().update(suite(targets_attempts))
