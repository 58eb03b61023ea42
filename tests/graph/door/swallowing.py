"""Ways in which an author's code swallows what a question raises, and a node in which one of them does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import warnings
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ContextThreadPoolExecutor

from tests.graph.door.gates import Gate, State
from tests.harness import Bench, thread

Ask = Callable[[], Any]

SWALLOWED = "swallowed"
"""What a form gives in place of an answer."""


def except_exception(ask: Ask) -> Any:
    try:
        return ask()
    except Exception:
        return SWALLOWED


def except_base_exception(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        return SWALLOWED


def fallbacks(ask: Ask) -> Any:
    asking = RunnableLambda(lambda _: ask()).with_fallbacks([RunnableLambda(lambda _: SWALLOWED)])
    return asking.invoke("")


def thread_pool(ask: Ask) -> Any:
    with ContextThreadPoolExecutor(1) as pool:
        call = pool.submit(ask)
        concurrent.futures.wait([call])
    return SWALLOWED if call.exception() else call.result()


async def gathered(ask: Ask) -> Any:
    async def call() -> Any:
        return ask()

    (found,) = await asyncio.gather(call(), return_exceptions=True)
    return SWALLOWED if isinstance(found, BaseException) else found


FORMS: dict[str, Callable[[Ask], Any]] = {
    "except Exception": except_exception,
    "except BaseException": except_base_exception,
    "with_fallbacks": fallbacks,
    "a thread pool": thread_pool,
    "gather": gathered,
}

EVENTS = "SELECT name, body FROM interrupt_events WHERE type = 'interrupt_swallowed' ORDER BY id"


class Swallower:
    """The node `gate`, in which something swallows what its question raises.

    Attributes:
        gate: keeps what the node was told, and how often the node behind it ran.
        ran: how often the body has begun.
        form: what swallows, or None.
    """

    def __init__(self, bench: Bench, kind: str, form: str, path: str = "gate", **options: Any) -> None:
        self.gate = Gate(bench, kind, path, **options)
        self.ran = 0
        self.form: Callable[[Ask], Any] | None = FORMS[form]
        if form == "gather" and bench.mode == "async":
            self.gate.node = self.anode  # type: ignore[method-assign, assignment]
        else:
            self.gate.node = self.node  # type: ignore[method-assign]

    def node(self, state: State) -> dict[str, Any]:
        self.ran += 1
        found = self.gate.ask() if self.form is None else self.form(self.gate.ask)
        return self._told(asyncio.run(found) if asyncio.iscoroutine(found) else found)

    async def anode(self, state: State) -> dict[str, Any]:
        self.ran += 1
        return self._told(self.gate.ask() if self.form is None else await self.form(self.gate.ask))

    def _told(self, found: Any) -> dict[str, Any]:
        self.gate.told.append(found)
        return {"log": [found if found == SWALLOWED else found["note"]]}


async def run(bench: Bench, target: Any, method: str, *args: Any, told: list[str], **kwargs: Any) -> Any:
    """Call; `told` gets the point's name of each warning of a swallowed question."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return await bench.call(target, method, *args, **kwargs)
        finally:
            told += [str(w.message).split(":")[0] for w in caught if "swallowed" in str(w.message)]
            assert len([w for w in caught if "swallowed" not in str(w.message)]) == 0


async def values(bench: Bench, graph: Any) -> Any:
    return (await bench.call(graph, "get_state", thread())).values["log"]
