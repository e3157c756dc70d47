"""The assigned units of a pipeline as a pure machine: which operation runs next, which query applies which unit."""
