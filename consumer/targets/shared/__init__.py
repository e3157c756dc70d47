"""Code that dialects share: only they import it."""
