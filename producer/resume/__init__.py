"""How capture comes up: the stored position, the proof that the log is the same one, what the topics hold."""
