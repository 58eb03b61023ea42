"""An event loop in its own thread, in which commands call async applications."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoop:
    """An event loop in its own thread, so that the main thread is free for signals. Use it with `with`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> EventLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._cancel_other_tasks())
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result. If the wait is interrupted, the coroutine is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def enter(self, manager: AbstractAsyncContextManager[T], stack: ExitStack) -> T:
        """Enter the context manager and return what it gives; it is left when the stack is closed.

        One task enters and leaves it, because some context managers (anyio's) require that.
        """
        entered: Future[T] = Future()
        leave = asyncio.Event()

        async def hold() -> None:
            try:
                async with manager as value:
                    entered.set_result(value)
                    await leave.wait()
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error)

        def end() -> None:
            self._loop.call_soon_threadsafe(leave.set)
            held.result()

        held = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        value = entered.result()
        stack.callback(end)
        return value

    async def _cancel_other_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
