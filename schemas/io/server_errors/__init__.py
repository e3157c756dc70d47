"""What a database server refuses, in words: its version, and what is read of its catalog."""
