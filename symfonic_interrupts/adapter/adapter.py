"""The resume adapter: what an application calls to read tokens, answer them, and move threads on.

Each call is written once, as effects (in `answering` and `delivering`), and offered sync and async here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any, Literal

from symfonic_interrupts.adapter.adopting import Adopting
from symfonic_interrupts.adapter.answering_graph import Answering, AnsweringGraph, WhoAsks, answering_graph
from symfonic_interrupts.adapter.event_streams import EventStreams
from symfonic_interrupts.adapter.graph_checks import check_graph
from symfonic_interrupts.adapter.reading import Reading
from symfonic_interrupts.answering.batch import Answers, answer_many
from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.answering.reissue_revoke import Operator
from symfonic_interrupts.core.effects import Backend, Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.performing import aperform, aperform_stream, perform, perform_stream
from symfonic_interrupts.core.results import AnswerReceipt
from symfonic_interrupts.delivering.deliverer import Deliverer
from symfonic_interrupts.delivering.progress import Delivery, breakpoints_of
from symfonic_interrupts.delivering.recovery import Recovery, RunKwargs
from symfonic_interrupts.errors import AnswerUnused, UsageError
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.upkeep.janitor import Janitor
from symfonic_interrupts.upkeep.worker import Worker


class ResumeAdapter(EventStreams, Adopting, Reading):
    """Answers the pauses of one graph and drives its threads. Made by `Interrupts.resume_adapter`."""

    def __init__(self, hub: Hub, graph: Any, run_kwargs: RunKwargs | None = None) -> None:
        saver = check_graph(hub, graph)
        redeemer = Redeemer(hub, saver.graph)
        super().__init__(hub, saver.graph, redeemer, Backend(hub.database, saver.inner, graph))
        self.graph = graph
        self._deliverer = Deliverer(hub, graph, saver)
        self._recovery = Recovery(hub, saver.graph, self._deliverer, run_kwargs)
        self._operator = Operator(hub, saver.graph, redeemer)

    def __repr__(self) -> str:
        return f"ResumeAdapter(graph={self.graph_name!r})"

    # -- one token

    def answer(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> AnswerReceipt:
        """Spend the token on this answer and store it, without running the graph.

        Args:
            token: as it was given out.
            response: an instance of the point's response model, or plain JSON data.
            scope: where the answer comes from; required unless `FrameworkConfig.default_scope` is set.
            actor: who answers, in the application's words, at most 255 characters; recorded.
            idempotency_key: the same key with the same answer again gives the same receipt instead of `TokenConsumed`.

        Raises:
            TokenInvalid, TokenExpired, TokenConsumed, UnknownInterrupt, ScopeRequired, ScopeMismatch, ResponseInvalid,
            PauseNotReady, PauseSuperseded, CheckpointMissing, StoreError: the token is not spent.
            UsageError: an `actor` or `idempotency_key` of no or too many characters, or that is no printable text.
        """
        return perform(self._redeemer.answer(token, response, scope, actor, idempotency_key), self._backend)[0]

    async def aanswer(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> AnswerReceipt:
        """`answer` for coroutines: returns and raises the same."""
        return (await aperform(self._redeemer.answer(token, response, scope, actor, idempotency_key), self._backend))[0]

    # -- one thread

    def deliver(self, thread_id: str, **graph_kwargs: Any) -> Delivery:
        """Drive a thread's graph with its stored answers, until it ends or waits for a person.

        Raises:
            CheckpointMissing: the thread has no checkpoint.
            ThreadBusy: another worker drove it for all of `FrameworkConfig.lease_wait`.
            UsageError: no thread id, or `graph_kwargs` that name a tenant, a checkpoint or an answer.
            Exception: whatever the graph raises; the answers stay stored.
        """
        return perform(self._deliverer.deliver(thread_id, graph_kwargs), self._backend)

    async def adeliver(self, thread_id: str, **graph_kwargs: Any) -> Delivery:
        """`deliver` for coroutines: returns and raises the same."""
        return await aperform(self._deliverer.deliver(thread_id, graph_kwargs), self._backend)

    def stream_delivery(self, thread_id: str, **graph_kwargs: Any) -> Generator[Any, None, Delivery]:
        """`deliver`, yielding the graph's chunks: raises the same, and returns the `Delivery` at its end (`yield from`)."""
        return perform_stream(self._deliverer.deliver(thread_id, graph_kwargs), self._backend)

    def astream_delivery(self, thread_id: str, **graph_kwargs: Any) -> AsyncGenerator[Any, None]:
        """`adeliver`, yielding the graph's chunks: raises the same."""
        return aperform_stream(self._deliverer.deliver(thread_id, graph_kwargs), self._backend)

    # -- both

    def invoke(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **graph_kwargs: Any,
    ) -> Any:
        """`answer`, then drive the thread; returns what the graph's own `invoke` would.

        Raises:
            AnswerUnused: the graph finished without using the answer; and all that `answer` and `deliver` raise.
        """
        effects = self._answer_and_deliver(token, response, scope, actor, idempotency_key, graph_kwargs)
        return perform(effects, self._backend).output

    async def ainvoke(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **graph_kwargs: Any,
    ) -> Any:
        """`invoke` for coroutines: returns and raises the same."""
        effects = self._answer_and_deliver(token, response, scope, actor, idempotency_key, graph_kwargs)
        return (await aperform(effects, self._backend)).output

    def stream(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **graph_kwargs: Any,
    ) -> Generator[Any, None, Delivery]:
        """`invoke`, yielding what the graph's own `stream` would: raises the same, and returns the `Delivery` at its end."""
        effects = self._answer_and_deliver(token, response, scope, actor, idempotency_key, graph_kwargs)
        return perform_stream(effects, self._backend)

    def astream(
        self,
        token: str,
        response: Any,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **graph_kwargs: Any,
    ) -> AsyncGenerator[Any, None]:
        """`ainvoke`, yielding what the graph's own `astream` would: raises the same."""
        effects = self._answer_and_deliver(token, response, scope, actor, idempotency_key, graph_kwargs)
        return aperform_stream(effects, self._backend)

    def _answer_and_deliver(
        self,
        token: str,
        response: Any,
        scope: FrameworkTenantScope | None,
        actor: str | None,
        idempotency_key: str | None,
        graph_kwargs: dict[str, Any],
    ) -> Effects[Delivery]:
        self._deliverer.check_kwargs(graph_kwargs)

        def check(row: PauseRow) -> None:  # before the token is spent
            self._deliverer.check_kwargs(graph_kwargs, row["thread_id"])

        receipt, row, held = yield from self._redeemer.answer(
            token,
            response,
            scope,
            actor,
            idempotency_key,
            hold=True,
            breakpoints=breakpoints_of(graph_kwargs),
            on_row=check,
        )
        delivery = yield from self._deliverer.deliver(row["thread_id"], graph_kwargs, held=held)
        unused = receipt.interrupt_id in delivery.unused
        if not unused and not delivery.ran:  # another worker delivered it
            states = yield from transact(self._hub.operations.reading.states_of, [row["jti"]])
            unused = states.get(row["jti"]) == "unused"
        if unused:
            raise AnswerUnused("the answer was accepted and recorded, but the graph finished without using it")
        return delivery

    def as_graph(
        self,
        *,
        identity: WhoAsks | None = None,
        bare: bool = True,
        on_refused: Literal["ask", "raise"] = "ask",
        checkpointer: bool = True,
    ) -> AnsweringGraph:
        """The graph, in which `Command(resume=...)` is an answer through this adapter. All else is the author's graph.

        An answer is a mapping of interrupt ids (LangGraph's or this library's) to answers, or a bare one, where exactly one
        question waits that was asked before the call, and no other answer is under way. A repeated bare answer cannot be told
        from an answer to the next question: clients that want to be safe send ids. At an old checkpoint, or with `update` or
        `goto` beside it, an answer is a `UsageError`. Native questions that no point covers go on as they do in LangGraph.

        Args:
            identity: from the run's config, who is calling; may raise. None: the scope that the config names, and no actor.
            bare: take bare answers at all.
            on_refused: of `ResponseInvalid`, `TokenConsumed` and `PauseSuperseded`: `"ask"`: the run ends as it stood, the
                question asked again with the reason under `refused` in its marker and as `answer_refused` on `custom`;
                `"raise"`: raise it. `ScopeMismatch`, `ScopeRequired` and what `identity` raises are always raised.
            checkpointer: False: the graph comes without its saver, for an Agent Server, which puts in the one that
                `langgraph.json` names; it must be one of `interrupts.checkpointer(...)` for this graph.
        """
        if on_refused not in ("ask", "raise"):
            raise UsageError('on_refused must be "ask" or "raise"')
        answering = Answering(
            self._hub,
            self.graph_name,
            self._redeemer,
            identity=identity,
            bare=bare,
            on_refused=on_refused,
        )
        return answering_graph(self.graph, answering, checkpointer=self.graph.checkpointer if checkpointer else None)

    # -- what an operator does to a pause

    def reissue(
        self,
        interrupt_id: str,
        *,
        ttl: timedelta | None = None,
        scope: FrameworkTenantScope | None = None,
        thread_id: str | None = None,
    ) -> PauseEvent:
        """A new token for a pending or expired pause. The old token is dead; the question stays the same.

        Args:
            ttl: how long the new token lasts; None: as long as the point says.
            thread_id: the pause's thread. Needed only where pauses of several threads have this id; else UnknownInterrupt.

        Raises:
            UnknownInterrupt, ScopeRequired, ScopeMismatch, TokenConsumed, PauseSuperseded, CheckpointMissing, StoreError
            UsageError: a ttl that is no timedelta above zero, or beyond `FrameworkConfig.max_ttl`.
        """
        return perform(self._operator.reissue(interrupt_id, ttl, scope, thread_id), self._backend)

    async def areissue(
        self,
        interrupt_id: str,
        *,
        ttl: timedelta | None = None,
        scope: FrameworkTenantScope | None = None,
        thread_id: str | None = None,
    ) -> PauseEvent:
        """`reissue` for coroutines: returns and raises the same."""
        return await aperform(self._operator.reissue(interrupt_id, ttl, scope, thread_id), self._backend)

    def revoke(
        self,
        interrupt_id: str,
        *,
        reason: str,
        scope: FrameworkTenantScope | None = None,
        thread_id: str | None = None,
    ) -> None:
        """Kill the token of a pending pause; the thread stays where it is. The reason is recorded.

        Args:
            thread_id: see `reissue`.

        Raises:
            UnknownInterrupt, ScopeRequired, ScopeMismatch, TokenConsumed, PauseSuperseded, StoreError
            UsageError: no reason, or one of more than 1,000 characters.
        """
        perform(self._operator.revoke(interrupt_id, reason, scope, thread_id), self._backend)

    async def arevoke(
        self,
        interrupt_id: str,
        *,
        reason: str,
        scope: FrameworkTenantScope | None = None,
        thread_id: str | None = None,
    ) -> None:
        """`revoke` for coroutines: raises the same."""
        await aperform(self._operator.revoke(interrupt_id, reason, scope, thread_id), self._backend)

    # -- many

    def invoke_many(
        self,
        answers: Answers,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        **graph_kwargs: Any,
    ) -> list[Delivery]:
        """Answer many pauses, all or none in one transaction; then drive each thread once.

        Args:
            answers: pairs of (token, response).
            scope, actor: of all of them; see `answer`.
            graph_kwargs: for every run of the graph.

        Returns:
            One `Delivery` per thread, in the order of the answers; what its graph raised stands in `Delivery.error`.

        Raises:
            InterruptError: what `answer` raises; `index` and the message say which answer. None of the tokens is spent.
            UsageError: also a token that stands in the list twice, or something that is no pair.
        """
        return perform(self._invoke_many(answers, scope, actor, graph_kwargs), self._backend)

    async def ainvoke_many(
        self,
        answers: Answers,
        *,
        scope: FrameworkTenantScope | None = None,
        actor: str | None = None,
        **graph_kwargs: Any,
    ) -> list[Delivery]:
        """`invoke_many` for coroutines: returns and raises the same."""
        return await aperform(self._invoke_many(answers, scope, actor, graph_kwargs), self._backend)

    def _invoke_many(
        self, answers: Answers, scope: FrameworkTenantScope | None, actor: str | None, graph_kwargs: dict[str, Any]
    ) -> Effects[list[Delivery]]:
        check = self._deliverer.check_kwargs
        check(graph_kwargs)
        threads = yield from answer_many(
            self._hub, self._redeemer, answers, scope, actor, lambda row: check(graph_kwargs, row["thread_id"])
        )
        return (yield from self._recovery.deliver_each(threads, graph_kwargs))

    def recover(self, limit: int | None = None) -> list[Delivery]:
        """Finish what a crash left unfinished: undelivered answers, interrupted runs, pauses that were never stored whole.

        Threads that are being driven are left alone. One thread's error stands in its `Delivery.error`; the others go on.

        Args:
            limit: at most so many threads, 1 or more; None: all.

        Raises:
            StoreError
            UsageError: no such limit.
        """
        return perform(self._recovery.recover(limit), self._backend)

    async def arecover(self, limit: int | None = None) -> list[Delivery]:
        """`recover` for coroutines: returns and raises the same."""
        return await aperform(self._recovery.recover(limit), self._backend)

    def janitor(self) -> Janitor:
        """A janitor for this graph; as `Interrupts.janitor`."""
        return Janitor(self._hub, self.graph_name, self._redeemer, self._recovery, self._backend)

    def worker(self) -> Worker:
        """A loop that recovers and sweeps this graph; as `Interrupts.worker`."""
        janitor = self.janitor()
        return Worker([self.recover, janitor.sweep], [self.arecover, janitor.asweep])

    def belongs_to(self, hub: Hub) -> bool:
        """Whether it was made by the `Interrupts` that has this hub."""
        return self._hub is hub
