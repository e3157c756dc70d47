"""An archive of the classes that Spark loads (Java's class data sharing).

`rowlock spark prepare` creates it, once for a machine. Without it a JVM reads and
verifies some ten thousand classes at each start. The archive is optional: Java ignores it unless Java
itself, its options and PySpark's jars are those with which it was created.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from consumer.spark.query import build_session_settings, get_java_process, start_session

MADE_WITHIN_S = 180.0
"""Seconds that Spark may take for its first batches, and Java to write the archive at its end."""
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_file() -> Path:
    """Return the path of the archive, which belongs to the jars that are installed beside this Python."""
    return Path(sys.prefix) / "spark-classes.jsa"


def list_archive_options() -> list[str]:
    """Return Java's options to use the archive; none if there is no archive.

    An archive that does not fit is ignored.
    """
    file = archive_file()
    return [f"-XX:SharedArchiveFile={file}", *_SILENT] if file.exists() else []


def make_class_archive() -> bool:
    """Create the archive unless one for this Java and PySpark exists; return whether it was created.

    Raises OSError, RuntimeError.
    """
    file, stamp = archive_file(), archive_file().with_suffix(".txt")
    expected = _describe_inputs()
    if file.exists() and stamp.exists() and stamp.read_text() == expected:
        return False
    file.unlink(missing_ok=True)  # no start may use it from here on
    with tempfile.TemporaryDirectory(prefix="rowlock-classes-") as folder:
        made = file.with_suffix(f".{Path(folder).name}")
        try:
            _run_spark(Path(folder), made)
            made.replace(file)
        finally:
            made.unlink(missing_ok=True)
    stamp.write_text(expected)
    return True


def _describe_inputs() -> str:
    """Return, as text, everything on which an archive depends."""
    home = os.environ.get("JAVA_HOME")  # as Spark looks for it
    command = [str(Path(home) / "bin" / "java") if home else "java", "-version"]
    java = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    spark = importlib.metadata.version("pyspark")
    code = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=8).hexdigest()
    return f"{java.stderr}{java.stdout}PySpark {spark} in {sys.prefix}, by {code}\n"


def _run_spark(folder: Path, archive: Path) -> None:
    """Run a query of a few batches through Python workers; its Java archives the classes that it has
    loaded.

    Raises RuntimeError if no batch, or no archive, is finished in time.
    """
    quiet = folder / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    settings = build_session_settings(
        master="local[2,4]",
        memory="1g",
        local_dir=str(folder / "spark"),
        log4j=str(quiet),
        classes=[f"-XX:ArchiveClassesAtExit={archive}", *_SILENT],
    )
    session = start_session(settings)
    session.sparkContext.setLogLevel("OFF")
    java = get_java_process(session)
    rows = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    query = (
        rows.mapInArrow(_return_unchanged, rows.schema)
        .writeStream.format("noop")
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    end = time.monotonic() + MADE_WITHIN_S
    while not ((last := query.lastProgress) and last["batchId"] >= 1):
        if time.monotonic() > end or query.exception() is not None:
            raise RuntimeError(f"Spark applied no batch within {MADE_WITHIN_S:.0f} s: {query.exception()}")
        time.sleep(0.05)
    query.stop()
    session.stop()
    if java.stdin is not None:
        java.stdin.close()  # makes Java end, as at the end of a Python process
    java.wait(MADE_WITHIN_S)
    if not archive.exists():
        raise RuntimeError("Java wrote no archive of its classes")


def _return_unchanged(batches: object) -> object:
    return batches


if __name__ == "__main__":
    try:
        made = make_class_archive()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Spark starts slower, for there is no archive of its classes: {error}\n")
    else:
        if made:
            sys.stderr.write(f"made {archive_file()}: Spark starts faster with it\n")
