"""The peers' own DDL and type tests, run through a real system: see README.md in this folder."""
