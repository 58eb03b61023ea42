"""The composition root: one `Interrupts` holds the store, the keys, the settings and the points, and makes everything else."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import sqlalchemy as sa
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from pydantic import BaseModel

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.ask_user import ASK_USER, AskUserRequest, AskUserResponse, validate_ask_user
from symfonic_interrupts.asking.ask_user_tool import ask_user_tool
from symfonic_interrupts.asking.breakpoint_nodes import BreakpointAnswer, BreakpointStop, Otherwise
from symfonic_interrupts.asking.breakpoints import Breakpoints
from symfonic_interrupts.asking.decorating import Decorator, check_callables
from symfonic_interrupts.asking.point import InterruptPoint
from symfonic_interrupts.clock import Clock, system_clock
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.core.effects import Backend
from symfonic_interrupts.core.hub import Hub, Subscriber
from symfonic_interrupts.core.performing import perform
from symfonic_interrupts.delivering.recovery import RunKwargs
from symfonic_interrupts.errors import KeyRingError, RegistrationError, StoreError
from symfonic_interrupts.event_shapes import AskUserShapes
from symfonic_interrupts.presenting import Presentation, Presents
from symfonic_interrupts.registration import InterruptRegistration, PointOptions
from symfonic_interrupts.registry import Registry
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from symfonic_interrupts.tokens.keys import KeyRing
from symfonic_interrupts.upkeep.janitor import Janitor
from symfonic_interrupts.upkeep.purge import purge
from symfonic_interrupts.upkeep.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


class Interrupts:
    """Pauses that count once.

    Args:
        store: where pauses are recorded: an SQLAlchemy URL (SQLite file, PostgreSQL), an `Engine` or an `AsyncEngine`.
        keys: the signing keys. There is no default.
        config: settings.
        clock: returns the time (UTC). For tests.

    Raises:
        StoreError: the store cannot be used, or its driver is not installed.
        KeyRingError: no keys.
    """

    def __init__(
        self,
        store: str | sa.URL | sa.Engine | AsyncEngine,
        *,
        keys: KeyRing,
        config: FrameworkConfig | None = None,
        clock: Clock = system_clock,
        _replace: bool = False,
    ) -> None:
        if not isinstance(keys, KeyRing):
            raise KeyRingError('keys must be a KeyRing, such as KeyRing.from_env("SYMFONIC_INTERRUPTS_KEYS")')
        config = config or FrameworkConfig()
        self._hub = Hub(
            config=config,
            keys=keys,
            clock=clock,
            registry=Registry(config, replace=_replace),
            database=Database(store, clock=clock),
            operations=Operations(clock),
        )
        self.ask_user: InterruptPoint[AskUserRequest, AskUserResponse] = self._point(
            InterruptRegistration(
                name=ASK_USER,
                payload_schema=AskUserRequest,
                response_schema=AskUserResponse,
                validate_response=validate_ask_user,
                built_in=True,
                shapes=AskUserShapes(),
            )
        )

    @classmethod
    def local(
        cls, path: str | os.PathLike[str], *, config: FrameworkConfig | None = None, clock: Clock = system_clock
    ) -> Interrupts:
        """For notebooks and demos: an SQLite file, and a key file beside it (`<path>.key`, mode 0600), made when missing.

        Registering a name again replaces it, so cells can be run again.

        Args:
            path: of the SQLite file.
            config: settings, taken as they are. None: custom points are on, and the default scope is the tenant `local`.
            clock: returns the time (UTC). For tests.

        Raises:
            StoreError: a URL instead of a path, or the file cannot be used.
            KeyRingError: the key file cannot be used.
        """
        if "://" in str(path):
            raise StoreError(
                "Interrupts.local takes the path of a file, not a URL; for a URL use Interrupts(url, keys=...)"
            )
        file = Path(path)
        if config is None:
            config = FrameworkConfig(experimental_interrupt=True, default_scope=FrameworkTenantScope("local"))
        keys = KeyRing.create_file(file.with_name(file.name + ".key"))
        return cls(sa.URL.create("sqlite", database=str(file)), keys=keys, config=config, clock=clock, _replace=True)

    # -- points

    @property
    def registrations(self) -> Mapping[str, InterruptRegistration]:
        """All points by name, the built-in one among them. Read-only."""
        return MappingProxyType(dict(self._hub.registry))

    @property
    def config(self) -> FrameworkConfig:
        """The settings."""
        return self._hub.config

    def register_interrupt(
        self,
        name: str,
        *,
        payload_schema: type[P],
        response_schema: type[R],
        validate_response: Callable[[R, P], None] | None = None,
        cross_scope_allowed: bool = False,
        metadata: Mapping[str, Any] | None = None,
        ttl: timedelta | None = None,
        on_expire: R | None = None,
        nodes: Sequence[str] = (),
        nodes_of: object | None = None,
        present: Presentation[P, R] | Presents | None = None,
    ) -> InterruptPoint[P, R]:
        """Register a point. See `InterruptRegistration` for the arguments.

        Raises:
            FeatureDisabled: `FrameworkConfig.experimental_interrupt` is off.
            RegistrationError: a name that is taken or malformed, a schema that is no pydantic model, a TTL out of range, ...
        """
        return self._point(
            InterruptRegistration(
                name=name,
                payload_schema=payload_schema,
                response_schema=response_schema,
                validate_response=validate_response,
                cross_scope_allowed=cross_scope_allowed,
                metadata=metadata or {},
                ttl=ttl,
                on_expire=on_expire,
                nodes=nodes,  # type: ignore[arg-type]  # checked and made a tuple there
                nodes_of=nodes_of,
                present=present,
            )
        )

    def interrupt_point(
        self,
        name: str,
        *,
        payload_schema: type[P],
        response_schema: type[R],
        payload: Callable[[Any], P] | Callable[[Any], Awaitable[P]],
        when: Callable[[Any], bool] | None = None,
        **registration: Unpack[PointOptions[P, R]],
    ) -> Decorator:
        """Register a point and make the decorated `function(state, decision, ...)` its node, in one.

        Args:
            payload, when: see `InterruptPoint.node`.
            registration: further arguments of `register_interrupt`.

        Raises:
            FeatureDisabled, RegistrationError: see `register_interrupt` and `InterruptPoint.node`.
        """
        check_callables(name, payload, when)  # before anything is registered
        point = self.register_interrupt(
            name, payload_schema=payload_schema, response_schema=response_schema, **registration
        )
        return point.node(payload, when=when)

    def breakpoint(
        self,
        builder: StateGraph[Any, Any, Any, Any],
        *,
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        show: Callable[[Any], Any] | None = None,
        otherwise: Otherwise | None = None,
        may_change: Sequence[str] | None = None,
        name: str = "breakpoint",
        validate_response: Callable[[BreakpointAnswer, BreakpointStop], None] | None = None,
        cross_scope_allowed: bool = False,
        metadata: Mapping[str, Any] | None = None,
        ttl: timedelta | None = None,
        on_expire: BreakpointAnswer | None = None,
    ) -> InterruptPoint[BreakpointStop, BreakpointAnswer]:
        """Static breakpoints that are points: the graph stops at these nodes, and the answer to a token says how it goes on:
        `{"proceed": true}`, with `"update": {...}` to change the state first, or `{"proceed": false}` to go elsewhere.

        Call it when the graph has all its nodes and edges, and before `compile`. Before a node, the node asks and then runs, in
        one task. After one, a node `<name>_breakpoint` asks, to which the node's edges move.

        Args:
            before, after: names of nodes; in place of `interrupt_before` and `interrupt_after`.
            show: from the state (or what `Send` gave the node), what is shown: JSON data or a model. Pure. None: nothing.
            otherwise: where an answer goes that does not proceed: a node, `END`, or a function of (state, answer) that returns
                one, or a `Command`. The node's own edges lead nowhere then. None: an answer must proceed.
            may_change: the keys of the state that an answer may change. None: those that were shown under their own names.
            name: of the point; a second call needs another.
            validate_response, cross_scope_allowed, metadata, ttl, on_expire: see `InterruptRegistration`.

        Raises:
            FeatureDisabled: `FrameworkConfig.experimental_interrupt` is off.
            RegistrationError: no `StateGraph`, no such nodes, one that has a breakpoint there already, that an edge waits for
                together with others (with `otherwise`), or that goes on by `Command` (in `after`); and see
                `register_interrupt`.
        """
        points = Breakpoints(name, builder, before, after, show, otherwise, may_change)
        if on_expire is not None and otherwise is None and not on_expire.proceed:
            raise RegistrationError(f"{name}: on_expire does not proceed, and there is no otherwise=")
        point = self.register_interrupt(
            name,
            payload_schema=BreakpointStop,
            response_schema=BreakpointAnswer,
            validate_response=points.validator(validate_response),
            cross_scope_allowed=cross_scope_allowed,
            metadata=metadata,
            ttl=ttl,
            on_expire=on_expire,
        )
        points.set(point.pause)
        return point

    def _point(self, registration: InterruptRegistration) -> InterruptPoint[Any, Any]:
        self._hub.database.check_open()
        return InterruptPoint(self._hub, self._hub.registry.add(registration))

    # -- the parts of a graph

    def checkpointer(self, saver: BaseCheckpointSaver[Any], *, graph: str = "default") -> InterruptSaver:
        """Wrap a graph's saver, for `builder.compile(checkpointer=...)`.

        Args:
            saver: any bare `BaseCheckpointSaver`.
            graph: the graph's name; tokens of one graph are not valid for another.

        Raises:
            RegistrationError: no saver, or one that is wrapped already.
        """
        self._hub.database.check_open()
        return InterruptSaver(saver, self._hub, graph=graph)

    def resume_adapter(self, graph: Any, run_kwargs: RunKwargs | None = None) -> ResumeAdapter:
        """The adapter that answers and resumes this compiled graph.

        Args:
            graph: compiled with `checkpointer=interrupts.checkpointer(...)`.
            run_kwargs: (thread_id, scope) -> keyword arguments for runs that nobody calls: `recover`, janitor, worker.

        Raises:
            RegistrationError: see `adapter.graph_checks.check_graph`.
        """
        return ResumeAdapter(self._hub, graph, run_kwargs)

    def janitor(self, adapter: ResumeAdapter) -> Janitor:
        """The janitor for an adapter's graph.

        Raises:
            RegistrationError: not an adapter of this `Interrupts`.
        """
        if not isinstance(adapter, ResumeAdapter) or not adapter.belongs_to(self._hub):
            raise RegistrationError("janitor and worker take what resume_adapter() of this Interrupts returned")
        return adapter.janitor()

    def worker(self, adapter: ResumeAdapter) -> Worker:
        """A loop that recovers and sweeps an adapter's graph until it is stopped; any number of processes may run one."""
        self.janitor(adapter)
        return adapter.worker()

    def ask_user_tool(self) -> BaseTool:
        """A LangChain tool with which a model asks the user 1 to 4 multiple-choice questions and gets the answers as JSON."""
        return ask_user_tool(self.ask_user)

    def purge(self, older_than: timedelta, *, with_events: bool = False) -> dict[str, int]:
        """Delete pauses, of every graph in this store, that have ended, whose time is over, and asked longer ago than this.

        A token never becomes valid again: one without its pause is refused. Open and undelivered pauses stay.

        Args:
            with_events: delete the event rows of that time, too. An auditor may want them.

        Returns:
            How many `pauses`, `tokens` and `events` were deleted.

        Raises:
            UsageError: no timedelta of zero or more.
        """
        return perform(purge(self._hub, older_than, with_events), Backend(self._hub.database, None))

    def keys_in_use(self) -> dict[str, int]:
        """By key id, how many signatures of pauses that may still be answered or delivered are its own. See `KeyRing.check`."""
        return self._hub.database.run(self._hub.operations.upkeep.keys_in_use)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Have `callback(event)` called for every pause that a sweep of this process closes. Returns what ends it."""
        self._hub.subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._hub.subscribers:
                self._hub.subscribers.remove(callback)

        return unsubscribe

    # -- the store

    def create_schema(self) -> None:
        """Make the tables. SQLite does it by itself. Idempotent; safe when several processes start at once.

        Raises:
            StoreError: the store cannot be used, or its tables are those of another version.
        """
        self._hub.database.create_schema()

    async def acreate_schema(self) -> None:
        """`create_schema` for coroutines: raises the same."""
        await self._hub.database.acreate_schema()

    def close(self) -> None:
        """Give back the store's connections. Using this object, its points, savers or adapters later raises StoreError."""
        self._hub.database.close()

    async def aclose(self) -> None:
        """`close` for coroutines; gives back the connections of an `AsyncEngine`'s loop, too."""
        await self._hub.database.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Interrupts({self._hub.database.target!r}, points={sorted(self._hub.registry)})"
