"""Generated mutants: a fixed sample of small changes of the product, each with the verdict of the unit tests.

`sample.tsv` has 2,000 places drawn by `SEED`, in proportion to the number of places below each two path parts
(`consumer/targets`, `coordinator/core`, …). A place's key is (file, function, operator, ordinal of that
operator within the function): it survives whatever moves lines, and a rename maps it. The verdicts:

- killed: a test failed, or did not end in time; `test` names it.
- survived: none of the chosen tests failed. Either a test is missing, or the change makes no difference:
  `accepted.tsv` lists the latter with the reason.
- unreached: no unit test and no simulation calls the function. Tests with services (tests/integration,
  tests/faults) reach most of these; they take minutes each and are not run here.
- error: the changed file cannot be compiled or imported, so any test fails.

The unit tests and a few seeds of the simulations run, and nothing that needs a service. Tests that start
further Python processes judge the mutant only by what happens in their own process.

`python -m tests.mutants.generated --store` writes the verdicts; `--sample N` checks that N killed mutants are
still killed.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "producer", "consumer", "coordinator", "rowlock")
SEED = 30
SIZE = 2000
FOLDER = Path(__file__).parent
