"""The live view of `rowlock run` on a terminal."""
