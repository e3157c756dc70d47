"""rowlock and its command line; see docs/reference/cli.md."""

__version__ = "0.3.0.dev0"
