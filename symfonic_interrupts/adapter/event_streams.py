"""LangGraph's `stream_events` over a delivery: the same events, channels and handles as over a run of the graph's own.

LangGraph builds them from what the graph's `stream` or `astream` yields. So they are asked of a copy of the graph whose two
methods stream the delivery instead; the graph itself is never touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Literal, overload

from langchain_core.runnables.schema import StreamEvent
from langgraph.stream import AsyncGraphRunStream, GraphRunStream

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.core.effects import Backend, Effects
from symfonic_interrupts.core.performing import aperform_stream, perform_stream
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.scope import FrameworkTenantScope


class EventStreams(ABC):
    """The part of a resume adapter that offers `stream_events`."""

    _backend: Backend

    def stream_events(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        version: Literal["v3"] = "v3",
        **graph_kwargs: Any,
    ) -> GraphRunStream:
        """`invoke` as a run of the graph's own `stream_events(version="v3")`, which LangGraph calls experimental.

        Nothing happens before the run is read: then the token is spent, and what `invoke` would raise is raised there.

        Args:
            graph_kwargs: for the graph's own call; `transformers` may be among them, `stream_mode` and `subgraphs` not.
        """
        graph = self._delivering(token, response, scope, actor, idempotency_key)
        run: GraphRunStream = graph.stream_events(None, version=version, **graph_kwargs)
        return run

    @overload
    def astream_events(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        version: Literal["v3"] = "v3",
        **graph_kwargs: Any,
    ) -> Awaitable[AsyncGraphRunStream]: ...

    @overload
    def astream_events(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        version: Literal["v1", "v2"],
        **graph_kwargs: Any,
    ) -> AsyncIterator[StreamEvent]: ...

    def astream_events(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        version: Literal["v1", "v2", "v3"] = "v3",
        **graph_kwargs: Any,
    ) -> Any:
        """`ainvoke` as the graph's own `astream_events`: of "v3" a run, to be awaited; of "v2" and "v1" an async iterator.

        Reading either raises what `ainvoke` raises.
        """
        graph = self._delivering(token, response, scope, actor, idempotency_key)
        return graph.astream_events(None, version=version, **graph_kwargs)

    def _delivering(
        self, token: str, response: Any, scope: FrameworkTenantScope | None, actor: str | None, key: str | None
    ) -> Any:
        return _delivering(
            lambda graph_kwargs: self._answer_and_deliver(token, response, scope, actor, key, graph_kwargs),
            self._backend,
        )

    @abstractmethod
    def _answer_and_deliver(
        self,
        token: str,
        response: Any,
        scope: FrameworkTenantScope | None,
        actor: str | None,
        idempotency_key: str | None,
        graph_kwargs: dict[str, Any],
    ) -> Effects[Delivery]:
        """The effects of `invoke`."""


def _delivering(deliver: Callable[[dict[str, Any]], Effects[Delivery]], backend: Backend) -> Any:
    """A copy of the graph whose runs are deliveries. Their input is ignored: the stored answers are sent."""

    def stream(_: Any, config: Any = None, **kwargs: Any) -> Generator[Any, None, Delivery]:
        return perform_stream(deliver({**kwargs, "config": config}), backend)

    def astream(_: Any, config: Any = None, **kwargs: Any) -> AsyncGenerator[Any, None]:
        return aperform_stream(deliver({**kwargs, "config": config}), backend)

    return names.with_streams(backend.graph, stream, astream)
