"""The errors with which the task of a slot ends: one sentence with the host, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from consumer.slots import channel
from consumer.spark.slot_task import SlotTask, run_slot
from consumer.spark.versions import collect_versions


class StreamError(grpc.RpcError):  # type: ignore[misc]  # gRPC has no types
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "timed out"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, ["is refused", "/token", "spark.executor_token_file"]),
        (grpc.StatusCode.UNAVAILABLE, ["10.0.0.1:7080 (timed out)", "spark.driver.channel_port"]),
    ],
)
def test_a_stream_that_ends_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode, expected: list[str]
) -> None:
    def serve(*_: Any) -> None:
        raise StreamError(code)

    monkeypatch.setattr(channel, "serve_slot", serve)
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    token = tmp_path / "token"
    token.write_text("the text of the token")
    task = SlotTask(1, "10.0.0.1:7080", b"", str(token), remote=True)
    with pytest.raises(RuntimeError) as caught:
        run_slot(task.list_fields(), collect_versions(), [])
    assert all(word in str(caught.value) for word in ["the executor on node7", *expected])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "short\n", None], ids=["empty", "short", "missing"])
def test_a_host_without_a_token_is_named_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(channel, "serve_slot", lambda *_: pytest.fail("the slot is served"))
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    task = SlotTask(1, "10.0.0.1:7080", b"", str(token), remote=True)
    with pytest.raises(RuntimeError) as caught:
        run_slot(task.list_fields(), collect_versions(), [])
    words = ["the executor on node7 cannot prove itself", str(token), "spark.executor_token_file"]
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
