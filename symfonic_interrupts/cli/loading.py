"""Finds the adapter that `--graph` names, and calls it the way its application works: sync or async.

Nothing is imported from the current directory unless `--app-dir` names it. An async application is called through the `a...`
methods, all in one event loop.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symfonic_interrupts.cli import logs
from symfonic_interrupts.cli.event_loop import EventLoop
from symfonic_interrupts.cli.exits import LoadFailed, Usage
from symfonic_interrupts.errors import InterruptError, UsageError

if TYPE_CHECKING:
    # Imports LangGraph, which takes seconds and which `--help` does not need.
    from symfonic_interrupts.adapter.adapter import ResumeAdapter

GRAPH_KINDS = "it names a ResumeAdapter, or a function without arguments that returns one"
GRAPH_REMEDY = f"pass --graph module:attribute, or set SYMFONIC_INTERRUPTS_GRAPH; {GRAPH_KINDS}"
MODULE_REMEDY = "install it, or name the folder it is in: --app-dir . for the current directory"


class Calls:
    """An adapter, and the way in which its application is called.

    Attributes:
        adapter: what `--graph` names.
    """

    def __init__(self, adapter: ResumeAdapter, loop: EventLoop | None) -> None:
        self.adapter = adapter
        self._loop = loop

    def __call__(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """`target.method(...)`, or `target.amethod(...)` if the application is async. May be called from any thread."""
        if self._loop is None:
            return getattr(target, method)(*args, **kwargs)
        return self._loop.run(getattr(target, "a" + method)(*args, **kwargs))


@contextmanager
def opened(reference: str | None, app_dir: Path | None = None, *, tracebacks: bool = False) -> Iterator[Calls]:
    """The adapter that `module:attribute` names. Inside the block the library's log is shown on stderr.

    Args:
        app_dir: a folder to import from first.
        tracebacks: the log shows the tracebacks of the application's errors, which may hold payloads.

    Raises:
        Usage: no graph is named, the name leads to something else, or the folder does not exist.
        LoadFailed: the application raised. Its `InterruptError`s are passed on as they are.
    """
    if not reference:
        raise Usage(f"this command needs a graph: {GRAPH_REMEDY}")
    with ExitStack() as stack:
        with _errors_of_the_application(reference):
            target = _attribute(reference, app_dir)
            adapter, loop = _adapter(target, reference, stack)
        stack.enter_context(logs.on_stderr(tracebacks=tracebacks))
        yield Calls(adapter, loop)


@contextmanager
def _errors_of_the_application(reference: str) -> Iterator[None]:
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
        target: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise Usage(f"--graph {reference}: there is no module {error.name}; {MODULE_REMEDY}") from None
    for name in path.split("."):
        try:
            target = getattr(target, name)
        except AttributeError:
            raise Usage(f"--graph {reference}: {module_name} has no {path}") from None
    return target


def _adapter(target: Any, reference: str, stack: ExitStack) -> tuple[ResumeAdapter, EventLoop | None]:
    """The adapter, and the event loop to call it in if the application is async. Both are closed with the stack."""
    from symfonic_interrupts.adapter.adapter import ResumeAdapter

    loop: EventLoop | None = None
    if not isinstance(target, ResumeAdapter) and callable(target):
        target = _called(target, reference)
        if inspect.iscoroutine(target):
            loop = stack.enter_context(EventLoop())
            target = loop.run(target)
        elif isinstance(target, AbstractAsyncContextManager):
            loop = stack.enter_context(EventLoop())
            target = loop.enter(target, stack)
        elif isinstance(target, AbstractContextManager):
            manager = target
            target = manager.__enter__()
            # Not enter_context: the application's manager must not see, and perhaps swallow, the error of a command.
            stack.callback(manager.__exit__, None, None, None)
    if isinstance(target, ResumeAdapter):
        return target, loop
    raise Usage(f"--graph {reference} is of type {type(target).__name__}; {GRAPH_KINDS}")


def _called(function: Callable[..., Any], reference: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise Usage(f"--graph {reference} must be a function without arguments") from None
    return function()
