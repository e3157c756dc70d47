"""Help texts: groups of commands whose help shows a whole sentence of each, and where a newcomer begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

START_HERE = "Start here"


class CommandGroup(click.Group):
    """A group of commands whose help has the first sentence of each, under the titles of `chapters`."""

    chapters: Mapping[str, Sequence[str]] = {}
    """Title → names of commands, in the order of the help; empty: all are under one title."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the chapters. click itself would cut sentences that do not fit into a line."""
        for title, names in (self.chapters or {"Commands": list(self.commands)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, read_summary(self.commands[name])) for name in names])


def read_summary(command: click.Command) -> str:
    """Return the first paragraph of a command's help, which is one sentence."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def format_beginning(context: click.Context, group: CommandGroup) -> str:
    """Return the text that shows where to begin: the group's first commands, and its help."""
    formatter = context.make_formatter()
    formatter.write_text(read_summary(group))
    with formatter.section(START_HERE):
        first = group.chapters[START_HERE]
        rows = [(f"rowlock {name}", read_summary(group.commands[name])) for name in first]
        formatter.write_dl([*rows, ("rowlock --help", "Show all commands.")])
    return formatter.getvalue().rstrip("\n")
