"""The coordinator's pure core: state machines that take (state, event, now) and return effects.

No module of this package reads a clock, draws a random number, does I/O or logs, and all iteration is in
a fixed order. The simulation therefore runs exactly the code that production runs. The invariants are
listed in docs/explanation/coordination.md.
"""
