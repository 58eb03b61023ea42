"""The optional methods of a saver: the wrapper has those that the wrapped saver has, and no others.

Servers and LangGraph's conformance suite look at a saver's class for what it can do (is the method another than
`BaseCheckpointSaver`'s?), and have ways of their own where it cannot. A wrapper that had a method and then raised
NotImplementedError would take those ways from them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from symfonic_interrupts.core.effects import Effects, transact


def has(saver: BaseCheckpointSaver[Any], name: str) -> bool:
    """Whether a saver has a method of its own, on its class or on itself, and not the base class's."""
    method = getattr(saver, name)
    return getattr(method, "__func__", method) is not getattr(BaseCheckpointSaver, name)


def class_around(inner: Any, wrapper: Any) -> type[Any]:
    """The wrapper's class, with those public methods of the base class added that `inner` has and the wrapper has not."""
    made: type[Any] = wrapper
    if not isinstance(inner, BaseCheckpointSaver):
        return made  # a wrapper is being copied, or is about to refuse what is no saver
    public = [(name, base) for name, base in vars(BaseCheckpointSaver).items() if not name.startswith("_")]
    missing = [name for name, base in public if getattr(wrapper, name) is base and has(inner, name)]
    return _class_with(wrapper, frozenset(missing)) if missing else made


@functools.cache
def _class_with(wrapper: Any, names: frozenset[str]) -> type[Any]:
    methods = {name: _DELETING_METHODS.get(name) or _passing_on(name) for name in names}
    return type(wrapper.__name__, (wrapper,), {"__module__": wrapper.__module__, "__doc__": wrapper.__doc__, **methods})


def _passing_on(name: str) -> Callable[..., Any]:
    base = getattr(BaseCheckpointSaver, name)
    if inspect.iscoroutinefunction(base):

        @functools.wraps(base)
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await getattr(self.inner, name)(*args, **kwargs)
    else:

        @functools.wraps(base)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.inner, name)(*args, **kwargs)

    return method


_DELETING = ("delete", "delete_all")  # strategies of `prune`: of LangGraph, and of its server

# -- methods that delete threads: their pauses are revoked


def _delete_thread(self: Any, thread_id: str) -> None:
    self.inner.delete_thread(thread_id)
    self.perform(_revoke(self, [thread_id]))


async def _adelete_thread(self: Any, thread_id: str) -> None:
    await self.inner.adelete_thread(thread_id)
    await self.aperform(_revoke(self, [thread_id]))


def _prune(self: Any, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
    self.inner.prune(thread_ids, strategy=strategy)
    self.perform(_revoke(self, thread_ids if strategy in _DELETING else ()))


async def _aprune(self: Any, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
    await self.inner.aprune(thread_ids, strategy=strategy)
    await self.aperform(_revoke(self, thread_ids if strategy in _DELETING else ()))


def _revoke(saver: Any, thread_ids: Sequence[str]) -> Effects[None]:
    for thread_id in thread_ids:
        yield from transact(saver.hub.operations.settling.revoke_thread, saver.graph, str(thread_id))


_DELETING_METHODS: dict[str, Callable[..., Any]] = {
    "delete_thread": _delete_thread,
    "adelete_thread": _adelete_thread,
    "prune": _prune,
    "aprune": _aprune,
}
