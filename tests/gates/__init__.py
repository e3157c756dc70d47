"""Gates of names, state, language and documents over the whole tree; `python -m tests.gates` shows what
they find."""
