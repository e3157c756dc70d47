"""The suite of definitions of tables, on every kind of target."""

from __future__ import annotations

from tests.conformance import targets_catalog
from tests.conformance.suite import suite
from tests.kits.targets import target as target

globals().update(suite(targets_catalog))
