"""Small wrong changes of the product, each with the tests that must find it.

`make test-mutants` tries them all; `.ci/run` tries `SAMPLE`. tests/unit/test_mutants.py holds each against the product's text,
so that none is left behind by a change. A mutant that behaves as the product does has no place here.
"""

from __future__ import annotations

from tests.mutants import (
    of_apply,
    of_capture,
    of_decoders,
    of_formats,
    of_kafka,
    of_labels,
    of_oracle,
    of_reload,
    of_servers,
    of_targets,
    of_versions,
)
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *of_decoders.MUTANTS, *of_apply.MUTANTS, *of_capture.MUTANTS, *of_targets.MUTANTS, *of_reload.MUTANTS,
    *of_oracle.MUTANTS, *of_kafka.MUTANTS, *of_formats.MUTANTS, *of_labels.MUTANTS, *of_servers.MUTANTS, *of_versions.MUTANTS,
]  # fmt: skip
#: A few that no service is needed for, from all over the list.
SAMPLE: list[Mutant] = [
    mutant for mutant in MUTANTS if all(test.startswith("tests/unit/") for test in mutant.tests)
][::30]
