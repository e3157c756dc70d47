"""The suite of every source, on the servers that can be one."""

from __future__ import annotations

from tests.conformance import sources
from tests.conformance.suite import suite
from tests.kits.sources import site as site

globals().update(suite(sources))
