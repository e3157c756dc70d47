"""The coordinator's pure core: state machines that take (state, event, now) and return effects.

Nothing in this package reads a clock, draws a random number, does I/O or logs; iteration is in a fixed order. So the
simulation runs exactly the code that production runs (docs/explanation/coordination.md has the invariants).
"""
