"""consumer.main with PySpark's own worker daemon: what our daemon module is measured against.

python -m tests.bench.stock_pyspark --config F --pipeline P
"""

from __future__ import annotations

import sys
from typing import Any

import consumer.main as main


def _stock(**arguments: Any) -> dict[str, str]:
    settings = _ours(**arguments)
    settings.pop("spark.python.daemon.module", None)
    return settings


_ours = main.session_settings
main.session_settings = _stock

if __name__ == "__main__":
    sys.exit(main.main())
