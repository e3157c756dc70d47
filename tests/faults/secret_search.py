"""A search for secrets in the files, pages, processes and traffic of a cluster."""

from __future__ import annotations

import base64
import contextlib
import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import psutil

from consumer.spark.cluster import UNPACKED
from tests.faults.spark_executors import RunOnHosts
from tests.servers.traffic import TrafficCapture

PACKAGE = {"rowlock-spark.tar.gz", UNPACKED}
"""The package and what is unpacked from it, hundreds of megabytes that were there before any secret."""
PAGES = (
    "jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "StreamingQuery/",
    "api/v1/applications",
)  # fmt: skip


def list_forms(secret: str) -> list[bytes]:
    """Return a secret as it is, as in HTML and JSON, and as in base64 at each of the three places in a longer
    text."""
    raw = secret.encode()
    forms = {
        raw,
        html.escape(secret).encode(),
        json.dumps(secret)[1:-1].encode(),
        json.dumps(json.dumps(secret))[3:-3].encode(),
    }
    for before in range(3):
        coded = base64.b64encode(b"x" * before + raw)
        forms.add(coded[(before * 8 + 5) // 6 : len(coded) - 4])  # the rest depends on what is beside it
    return sorted(forms)


def find_secrets(
    system: RunOnHosts, secrets: Mapping[str, str], events: Path, ui: int, capture: TrafficCapture
) -> set[tuple[str, str]]:
    """Return (kind of place, name of the secret) of all that is found. `ui`: port of the driver's pages."""
    forms = {form: name for name, secret in secrets.items() for form in list_forms(secret)}
    found = set()
    for kind, place, text in _list_texts(system, events, ui):
        for form, name in forms.items():
            if form in text:
                print(f"{name} is in {place}")
                found.add((kind, name))
    for form, flows in capture.find(*forms).items():
        print(f"{forms[form]} is in {flows[:3]}")
        found.add(("traffic", forms[form]))
    return found


def _list_texts(system: RunOnHosts, events: Path, ui: int) -> Iterator[tuple[str, str, bytes]]:
    for path in _list_files(events):
        yield "event log", str(path), path.read_bytes()
    base = f"http://{system.cluster.address}:{ui}"
    for page in PAGES:
        answer = httpx.get(f"{base}/{page}", timeout=30, trust_env=False, follow_redirects=True)
        yield "page", page, answer.raise_for_status().content
    for host in system.cluster.hosts:
        for folder in ("work", "local", "spark.conf", "worker.sh"):
            for path in _list_files(host.folder / folder):
                with contextlib.suppress(FileNotFoundError):
                    yield "work folder", str(path), path.read_bytes()
        for process in host.processes():
            yield from _list_process_texts(process, f"{host.name}'s")
    for process in system.run.family():
        yield from _list_process_texts(process, "the agent's")


def _list_process_texts(process: psutil.Process, whose: str) -> Iterator[tuple[str, str, bytes]]:
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            text = Path(f"/proc/{process.pid}/{name}").read_bytes()
            yield name, f"{name} of {whose} {process.pid}", text


def _list_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not PACKAGE & {*path.parts}
    ]
