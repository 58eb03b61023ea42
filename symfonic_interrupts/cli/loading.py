"""From what an operator names to what commands call: the adapter of `--graph`, sync or async, and the store of `--store`.

Nothing is imported from the current directory unless `--app-dir` names it. An async application is called through the `a...`
twins, all in one event loop of its own thread. Nothing is made by looking: a file that is not there is refused.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from symfonic_interrupts.cli import logs
from symfonic_interrupts.cli.ends import LoadFailed, Usage
from symfonic_interrupts.cli.options import KEYS, RETIRED_KEYS
from symfonic_interrupts.errors import InterruptError, UsageError
from symfonic_interrupts.store.engines import read_url
from symfonic_interrupts.tokens.keys import KeyRing, read_key_file

if TYPE_CHECKING:
    from symfonic_interrupts.adapter.adapter import ResumeAdapter  # with LangGraph: seconds, and no help text needs it

T = TypeVar("T")

GRAPH_REMEDY = (
    "pass --graph module:attribute, or set SYMFONIC_INTERRUPTS_GRAPH;"
    " it names a ResumeAdapter, or a function without arguments that returns one"
)
MODULE_REMEDY = "install it, or name the folder it is in: --app-dir . for the current directory"
STORE_REMEDY = "pass --store URL, or set SYMFONIC_INTERRUPTS_STORE"


class Calls:
    """An adapter, and the way in which its application is called.

    Attributes:
        adapter: what `--graph` names.
    """

    def __init__(self, adapter: ResumeAdapter, loop: EventLoop | None) -> None:
        self.adapter = adapter
        self._loop = loop

    def __call__(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """`target.method(...)`, or its async twin where the application is async. From any thread."""
        if self._loop is None:
            return getattr(target, method)(*args, **kwargs)
        return self._loop.run(getattr(target, "a" + method)(*args, **kwargs))


class EventLoop:
    """An event loop in a thread of its own, so that the main thread is free for signals."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> EventLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._cancel_the_rest())
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns. If the wait is broken off, so is the coroutine."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def enter(self, manager: AbstractAsyncContextManager[T], stack: ExitStack) -> T:
        """What the context manager gives; it is left with the stack, in the task that entered it, as some require."""
        entered: Future[T] = Future()
        leave = asyncio.Event()

        async def hold() -> None:
            try:
                async with manager as found:
                    entered.set_result(found)
                    await leave.wait()
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error)

        def end() -> None:
            self._loop.call_soon_threadsafe(leave.set)
            held.result()

        held = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        found = entered.result()
        stack.callback(end)
        return found

    async def _cancel_the_rest(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


@contextmanager
def opened(reference: str | None, app_dir: Path | None = None, *, tracebacks: bool = False) -> Iterator[Calls]:
    """The adapter that `module:attribute` names, until the command ends. The library's log is on stderr meanwhile.

    Args:
        app_dir: a folder to import from first.
        tracebacks: the log shows those of the application's errors, which may hold payloads.

    Raises:
        Usage: nothing is named, or something else; no such folder.
        LoadFailed: the application raised. What it refuses as `InterruptError` is passed on.
    """
    if not reference:
        raise Usage(f"this command needs a graph: {GRAPH_REMEDY}")
    with ExitStack() as stack:
        with _application(reference):
            found = _attribute(reference, app_dir)
            adapter, loop = _adapter(found, reference, stack)
        stack.enter_context(logs.on_stderr(tracebacks=tracebacks))
        yield Calls(adapter, loop)


@contextmanager
def _application(reference: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(error, Usage | InterruptError) and not isinstance(error, UsageError):
            raise  # a call that the application made wrongly is no usage of this command
        raise LoadFailed(f"{reference} could not be loaded: {type(error).__name__}: {error}") from error


def _attribute(reference: str, app_dir: Path | None) -> Any:
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise Usage(f"--graph {reference}: it has the form module:attribute, such as refunds.app:adapter")
    if app_dir is not None:
        if not app_dir.is_dir():
            raise Usage(f"--app-dir {app_dir}: there is no such folder")
        sys.path.insert(0, str(app_dir.resolve()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise Usage(f"--graph {reference}: there is no module {error.name}; {MODULE_REMEDY}") from None
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Usage(f"--graph {reference}: {module_name} has no {path}") from None
    return found


def _adapter(found: Any, reference: str, stack: ExitStack) -> tuple[ResumeAdapter, EventLoop | None]:
    from symfonic_interrupts.adapter.adapter import ResumeAdapter

    loop: EventLoop | None = None
    if not isinstance(found, ResumeAdapter) and callable(found):
        found = _called(found, reference)
        if inspect.iscoroutine(found):
            loop = stack.enter_context(EventLoop())
            found = loop.run(found)
        elif isinstance(found, AbstractAsyncContextManager):
            loop = stack.enter_context(EventLoop())
            found = loop.enter(found, stack)
        elif isinstance(found, AbstractContextManager):
            manager = found
            found = manager.__enter__()
            stack.callback(manager.__exit__, None, None, None)  # it must not swallow how a command ends
    if isinstance(found, ResumeAdapter):
        return found, loop
    raise Usage(f"--graph {reference} is of type {type(found).__name__}; {GRAPH_REMEDY.rpartition('; ')[2]}")


def _called(function: Callable[..., Any], reference: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise Usage(f"--graph {reference} must be a function without arguments") from None
    return function()


# -- the store and the keys


def store_url(store: str | None, *, made: bool = False) -> sa.URL:
    """The URL that `--store` names; a path is an SQLite file.

    Args:
        made: the file need not be there yet.

    Raises:
        Usage: none is named, it is no URL, only for async use, or a file that is not there.
    """
    if not store:
        raise Usage(f"this command needs the pause store: {STORE_REMEDY}")
    try:
        url = read_url(store if "://" in store else f"sqlite:///{store}")
    except (sa.exc.ArgumentError, ValueError):  # a port that is no number is a ValueError
        raise Usage("--store is neither an SQLAlchemy URL nor a path") from None
    if url.drivername in ("sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg_async"):
        sync = "sqlite" if url.drivername.startswith("sqlite") else "postgresql+psycopg"
        raise Usage(f"--store: {url.drivername} is for async use only; here the same store is {sync}://...")
    if url.drivername == "sqlite" and url.database and not made and not Path(url.database).exists():
        raise Usage(f"--store: there is no file {url.database}; `db upgrade` makes a new one")
    return url


def key_ring(keys_file: Path | None, retired_keys_file: Path | None) -> KeyRing:
    """The ring from the files, else from the variables.

    Raises:
        KeyRingError: no keys, or unusable ones.
    """
    keys, retired = key_texts(keys_file, retired_keys_file)
    source = f"key file {keys_file.name}" if keys_file else KEYS
    return KeyRing.from_text(keys, retired=retired, source=source)


def key_texts(keys_file: Path | None, retired_keys_file: Path | None, *, made: bool = False) -> tuple[str, str]:
    """The texts of the active keys and of the retired ones. Files are checked as `KeyRing.from_file` does it.

    Args:
        made: the file of retired keys need not be there yet.
    """
    if keys_file is None and retired_keys_file is not None:
        raise Usage(f"--retired-keys-file goes with --keys-file; beside {KEYS} stands {RETIRED_KEYS}")
    if keys_file is None:
        KeyRing.from_env(KEYS)
        active = os.environ[KEYS]
    else:
        active = read_key_file(keys_file)
        KeyRing.from_text(active, source=f"key file {keys_file.name}")
    if retired_keys_file is None:
        return active, os.environ.get(RETIRED_KEYS, "") if keys_file is None else ""
    if made and not retired_keys_file.exists():
        return active, ""
    retired = read_key_file(retired_keys_file)
    KeyRing.from_text(retired, source=f"key file {retired_keys_file.name}")
    return active, retired
