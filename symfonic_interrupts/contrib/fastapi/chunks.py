"""What a run streams, on its way from the graph to the client that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import anyio.from_thread

CHUNKS_AHEAD = 64
"""How many chunks a run may be ahead of its client. With so many waiting, the run waits too."""

PATIENCE = 60.0
"""Seconds for which a run waits. After that the client gets nothing more, and the run goes on alone."""

_END = object()


class Chunks:
    """A queue of chunks for one client, or for none once it has left."""

    def __init__(self, ahead: int = CHUNKS_AHEAD, patience: float = PATIENCE) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(ahead)
        self._patience = patience
        self._left = False

    async def put(self, chunk: Any) -> None:
        """Pass a chunk on. Does not wait for a client that is gone."""
        if self._left:
            return
        try:
            await asyncio.wait_for(self._queue.put(chunk), self._patience)
        except TimeoutError:
            self.leave()

    def put_all(self, chunks: Iterator[Any]) -> None:
        """Pass all chunks on, from a thread that anyio started."""
        for chunk in chunks:
            anyio.from_thread.run(self.put, chunk)

    async def end(self) -> None:
        """There are no more chunks."""
        await self.put(_END)

    def leave(self) -> None:
        """The client does not read any more."""
        self._left = True
        while not self._queue.empty():  # a run that waits for room goes on
            self._queue.get_nowait()
        self._queue.put_nowait(_END)

    async def read(self) -> AsyncGenerator[Any, None]:
        """The chunks, until the run ends."""
        try:
            while (chunk := await self._queue.get()) is not _END:
                yield chunk
        finally:
            self.leave()
