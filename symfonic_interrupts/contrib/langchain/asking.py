"""A middleware that asks with a point where no guard stands before its node.

LangChain's middleware calls LangGraph's `interrupt`. No adapter sees the nodes of an agent that a tool calls, so none can guard
them, and any resume would count there. A subclass of the middleware's own class has those methods that call `interrupt` once
more, with a name of their own for it. The middleware's module stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from langgraph import types as langgraph_types
from langgraph.config import get_config

from symfonic_interrupts.asking.point import InterruptPoint

PLAIN = "__asks_plainly__"
"""On the class of a middleware that asks with a point: the class that it had."""


def asks_with(point: InterruptPoint[Any, Any], middleware: Any) -> None:
    """From now on the middleware asks with the point where LangGraph's own `interrupt` would not be guarded.

    A middleware that calls no `interrupt` of LangGraph in its own methods stays as it is.
    """
    kind = type(middleware).__dict__.get(PLAIN, type(middleware))
    twins = [twin for part in kind.__mro__ if (twin := _twin_of(part, _asking(point))) is not None]
    if not twins:
        return
    # a twin stands right before its class, so `super()` in a subclass finds it
    bases = twins if twins[0].__bases__ == (kind,) else [kind, *twins]
    described = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    middleware.__class__ = type(kind.__name__, tuple(bases), {**described, PLAIN: kind})


def _asking(point: InterruptPoint[Any, Any]) -> Callable[..., Any]:
    def interrupt(value: Any, *, response_schema: Any = None) -> Any:
        ask = point.interrupt if point.is_needed_in(get_config()) else langgraph_types.interrupt
        return ask(value, response_schema=response_schema)

    return interrupt


def _twin_of(kind: type[Any], ask: Callable[..., Any]) -> type[Any] | None:
    """A subclass with those of the class's own methods that call LangGraph's `interrupt` once more; None without any."""
    methods = {}
    for name, function in vars(kind).items():
        if isinstance(function, FunctionType):
            used = function.__code__.co_names
            called = [n for n in used if function.__globals__.get(n) is langgraph_types.interrupt]
            if called:
                methods[name] = _twin(function, dict.fromkeys(called, ask))
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, **methods}) if methods else None


def _twin(function: FunctionType, meant: dict[str, Any]) -> FunctionType:
    """The same function, in which these global names mean something else."""
    names = {**function.__globals__, **meant}
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__annotations__ = dict(function.__annotations__)
    twin.__dict__.update(function.__dict__)
    twin.__doc__, twin.__module__, twin.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    return twin
