"""Write the golden files that are missing, as new versions."""

from __future__ import annotations

import sys

from tests.formats import STRUCTURES


def main() -> None:
    """Print the path of each new golden file."""
    for structure in STRUCTURES:
        for case in structure.cases:
            written = structure.write(case)
            if written is not None:
                sys.stdout.write(f"{written}\n")


if __name__ == "__main__":
    main()
