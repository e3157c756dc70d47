"""What dialects share: only they import it."""
