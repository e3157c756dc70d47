"""A source's chunks as capture asks for them: producer.sources.protocols.ChunkQueue, answered by the test."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk

Answer = ChunkRead | ChunkFailed | ChunkRefused


class ScriptedChunks:
    """A `ChunkQueue` without a thread. `answers`: what comes next, one at a poll; errors are raised."""

    def __init__(self) -> None:
        self.asked: list[ReadChunk] = []
        self.answers: deque[Answer | Exception] = deque()
        self.closed = False
        self._answered = 0

    def answer(self, made: Callable[[int], Answer | Exception]) -> None:
        """Answer the oldest request without an answer by what `made` makes of its number."""
        self.answers.append(made(self.asked[self._answered].request))
        self._answered += 1

    def submit(self, request: ReadChunk) -> None:
        self.asked.append(request)

    def poll_answer(self) -> Answer | None:
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True
