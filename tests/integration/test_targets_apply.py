"""The suite of net changes, on every kind of target."""

from __future__ import annotations

from tests.conformance import targets_apply
from tests.conformance.suite import suite
from tests.kits.targets import target as target

globals().update(suite(targets_apply))
