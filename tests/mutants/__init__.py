"""Small wrong changes of the product, each with the tests that must fail with it.

- `named_bugs` has about 80 bugs that rowlock must never have. `make test-mutants` tries all of them, and
  `.ci/run` a sample.
- `fresh` draws changes by a seed; `survivors` gives the reasons for those that no test has to find.
- `generated` has a fixed sample of 2,000 generated changes with a stored verdict each.
- `retired.tsv` lists the hand-written changes that there were before the named bugs: for each, the generated
  change that is killed in its place, or the reason why there is none.

tests/unit/test_mutants.py compares their texts with the product. A change that makes no difference has no
place here.
"""
