"""The calls of an adapter that change nothing: a token's pause, a pause by its id, open pauses, events, failures."""

from __future__ import annotations

import uuid

from symfonic_interrupts.adapter.listing import event_cursor, list_events, list_pending, view_pause
from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.core.effects import Backend
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.performing import aperform, perform
from symfonic_interrupts.core.results import PauseView
from symfonic_interrupts.delivering.failed_thread import FailedThread
from symfonic_interrupts.delivering.failures import list_failed
from symfonic_interrupts.events import PauseEvent, RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.tokens.pause_token import PauseToken


class Reading:
    """The reading half of `ResumeAdapter`."""

    def __init__(self, hub: Hub, graph_name: str, redeemer: Redeemer, backend: Backend) -> None:
        self.graph_name = graph_name
        self._hub = hub
        self._redeemer = redeemer
        self._backend = backend

    @property
    def config(self) -> FrameworkConfig:
        """The settings of its `Interrupts`."""
        return self._hub.config

    @property
    def hub(self) -> Hub:
        """What it shares with its `Interrupts`. For this package's own modules: a hub may change with any release."""
        return self._hub

    async def runs_async(self) -> bool:
        """Whether the graph can be run by coroutines: LangGraph's sync savers (`SqliteSaver`, `PostgresSaver`) refuse them."""
        no_thread = {"configurable": {"thread_id": f"no-thread-{uuid.uuid4()}", "checkpoint_ns": ""}}
        try:
            await self._backend.saver.aget_tuple(no_thread)
        except NotImplementedError:
            return False
        return True

    def inspect(self, token: str, *, scope: FrameworkTenantScope | None = None) -> PauseView:
        """What a token is about: payload, JSON Schema of the answer, expiry and state. Changes nothing.

        Raises:
            TokenInvalid, TokenExpired, UnknownInterrupt, ScopeRequired, ScopeMismatch, StoreError
        """
        return perform(self._redeemer.inspect(token, scope), self._backend)

    async def ainspect(self, token: str, *, scope: FrameworkTenantScope | None = None) -> PauseView:
        """`inspect` for coroutines: returns and raises the same."""
        return await aperform(self._redeemer.inspect(token, scope), self._backend)

    def verify(self, token: str) -> PauseToken:
        """The claims of a genuine token, from the keys alone: no database is asked, so the state of its pause is not known.

        Raises:
            TokenInvalid, TokenExpired
        """
        return self._redeemer.verify(token)

    def view(
        self, interrupt_id: str, *, scope: FrameworkTenantScope | None = None, thread_id: str | None = None
    ) -> PauseView:
        """What a pause is about, by its id instead of a token: for links that must not carry one. Changes nothing.

        Args:
            scope: who asks: the pause's own, or, where its point has `cross_scope_allowed`, one above it. Required unless
                `FrameworkConfig.default_scope` is set.
            thread_id: the pause's thread. Needed only where pauses of several threads have this id.

        Raises:
            UnknownInterrupt: no such pause, it is another scope's, or it may be any of several; the open one goes first.
            ScopeRequired, StoreError
        """
        return perform(view_pause(self._hub, self.graph_name, interrupt_id, scope, thread_id), self._backend)

    async def aview(
        self, interrupt_id: str, *, scope: FrameworkTenantScope | None = None, thread_id: str | None = None
    ) -> PauseView:
        """`view` for coroutines: returns and raises the same."""
        return await aperform(view_pause(self._hub, self.graph_name, interrupt_id, scope, thread_id), self._backend)

    def pending(
        self,
        *,
        scope: FrameworkTenantScope | None = None,
        include_sub_scopes: bool = False,
        name: str | None = None,
        thread_id: str | None = None,
        interrupt_id: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[PauseEvent]:
        """Open pauses with freshly minted tokens, newest first, from the pause store alone.

        Args:
            scope: whose; required unless `FrameworkConfig.default_scope` is set.
            include_sub_scopes: also those of scopes below it, of points with `cross_scope_allowed`.
            name, thread_id, interrupt_id: only of this point, this thread, this pause.
            limit: at most so many, 1 to 1,000.
            after: the `interrupt_id` of the last event of the page before.

        Raises:
            ScopeRequired, StoreError
            UnknownInterrupt: several open pauses have this `interrupt_id`; name the thread as well. Or several have the one
                that is given as `after`: end the page before at another event, with another limit.
            UsageError: a limit out of range.
        """
        effects = list_pending(
            self._hub,
            self.graph_name,
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            name=name,
            thread_id=thread_id,
            interrupt_id=interrupt_id,
            limit=limit,
            after=after,
        )
        return perform(effects, self._backend)

    async def apending(
        self,
        *,
        scope: FrameworkTenantScope | None = None,
        include_sub_scopes: bool = False,
        name: str | None = None,
        thread_id: str | None = None,
        interrupt_id: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[PauseEvent]:
        """`pending` for coroutines: returns and raises the same."""
        effects = list_pending(
            self._hub,
            self.graph_name,
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            name=name,
            thread_id=thread_id,
            interrupt_id=interrupt_id,
            limit=limit,
            after=after,
        )
        return await aperform(effects, self._backend)

    def events(
        self,
        *,
        scope: FrameworkTenantScope | None = None,
        include_sub_scopes: bool = False,
        thread_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RecordedEvent]:
        """What was recorded of a scope's pauses, oldest first. A reader that goes on from its last cursor misses none.

        On PostgreSQL an event is shown when no older transaction of the server still runs, so that none comes in before it.

        Args:
            scope: whose; required unless `FrameworkConfig.default_scope` is set.
            include_sub_scopes: also those of scopes below it, of points with `cross_scope_allowed`.
            thread_id: only of this thread.
            after: the cursor of the last event seen, or of `event_cursor`, for the same scope; None: from the beginning.
            limit: at most so many, 1 to 1,000.

        Raises:
            ScopeRequired, StoreError
            UsageError: a limit out of range, or no cursor.
        """
        effects = list_events(
            self._hub,
            self.graph_name,
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            thread_id=thread_id,
            after=after,
            limit=limit,
        )
        return perform(effects, self._backend)

    async def aevents(
        self,
        *,
        scope: FrameworkTenantScope | None = None,
        include_sub_scopes: bool = False,
        thread_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RecordedEvent]:
        """`events` for coroutines: returns and raises the same."""
        effects = list_events(
            self._hub,
            self.graph_name,
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            thread_id=thread_id,
            after=after,
            limit=limit,
        )
        return await aperform(effects, self._backend)

    def failed(self, *, scope: FrameworkTenantScope | None = None, limit: int = 100) -> list[FailedThread]:
        """Threads whose run raised after one of our answers, in whatever node, at a timeout or at the recursion limit; the
        longest ago first. The answers stay stored; `recover` leaves such a thread alone, and `deliver(thread_id)` tries it
        again. It is listed until a delivery, or a run of the application's own, goes on.

        Args:
            scope: only threads with such a pause of exactly this scope; None: of all.
            limit: at most so many, 1 to 1,000.

        Returns:
            Thread ids that know more: see `FailedThread`. `message` is the exception's own, so the application's text.

        Raises:
            StoreError
            UsageError: a limit that is not 1 to 1,000.
        """
        return perform(list_failed(self._hub, self.graph_name, self._backend.graph, limit, scope), self._backend)

    async def afailed(self, *, scope: FrameworkTenantScope | None = None, limit: int = 100) -> list[FailedThread]:
        """`failed` for coroutines: returns and raises the same."""
        effects = list_failed(self._hub, self.graph_name, self._backend.graph, limit, scope)
        return await aperform(effects, self._backend)

    def event_cursor(self, *, scope: FrameworkTenantScope | None = None) -> str:
        """The cursor of now: `events(after=...)` begins with what is recorded from here on.

        It may repeat what was recorded while older transactions still ran; it leaves nothing out.

        Args:
            scope: whose events it is for; required unless `FrameworkConfig.default_scope` is set.

        Raises:
            ScopeRequired, StoreError
        """
        return perform(event_cursor(self._hub, self.graph_name, scope), self._backend)

    async def aevent_cursor(self, *, scope: FrameworkTenantScope | None = None) -> str:
        """`event_cursor` for coroutines: returns and raises the same."""
        return await aperform(event_cursor(self._hub, self.graph_name, scope), self._backend)
