"""Schema changes of a target table while its unit runs: the machine, and the operations of a session."""
