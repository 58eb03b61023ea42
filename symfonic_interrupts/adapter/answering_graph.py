"""The answering graph: a compiled graph like the author's own, in which `Command(resume=...)` is an answer through the adapter.

So a client that knows nothing of tokens answers as LangGraph's documentation says. What it sends is validated, counts once, in
its caller's scope, and is delivered under the lease. Everything else is the author's graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from langchain_core.runnables.config import merge_configs
from langgraph.pregel import Pregel

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.adapter.graph_checks import check_graph
from symfonic_interrupts.adapter.resume_values import by_id, check_plain, is_resume, matched, the_one_waiting
from symfonic_interrupts.adapter.stream_chunks import asked_again, refusal
from symfonic_interrupts.answering.batch import answer_many
from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.core.checkpoints import read_tasks, waiting_in
from symfonic_interrupts.core.effects import Backend, Effects, Emit, GetTuple, ReadState, RunGraph, transact
from symfonic_interrupts.core.hub import TENANT_KEYS, Hub
from symfonic_interrupts.core.performing import aperform_stream, perform_stream
from symfonic_interrupts.core.refusals import record_refusal
from symfonic_interrupts.core.rows import pause_event, scope_of
from symfonic_interrupts.delivering.deliverer import Deliverer
from symfonic_interrupts.delivering.progress import breakpoints_of
from symfonic_interrupts.errors import (
    AnswerUnused,
    InterruptError,
    PauseSuperseded,
    RegistrationError,
    ResponseInvalid,
    ScopeMismatch,
    TokenConsumed,
    UsageError,
)
from symfonic_interrupts.identity import Identity
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import PauseRow

WhoAsks = Callable[[Mapping[str, Any]], Identity]
"""From the run's config, who is calling."""

REFUSALS = (ResponseInvalid, TokenConsumed, PauseSuperseded)
"""What does not end the run as an error: the question is asked again."""


class Answering:
    """How an answering graph takes an answer; shared by all its copies.

    Args:
        identity: from the run's config, who is calling. None: the scope of the run's config, and no actor.
        bare: take a bare answer where one question waits.
        on_refused: `"ask"`: an answer that is refused asks the question again; `"raise"`: it raises.
    """

    def __init__(
        self,
        hub: Hub,
        graph_name: str,
        redeemer: Redeemer,
        *,
        identity: WhoAsks | None,
        bare: bool,
        on_refused: Literal["ask", "raise"],
    ) -> None:
        self.hub = hub
        self.graph_name = graph_name
        self._redeemer = redeemer
        self._identity = identity
        self._bare = bare
        self._on_refused = on_refused

    def saver_of(self, graph: Any) -> InterruptSaver:
        """The graph's saver, if it is ours. Its nodes are guarded.

        Raises:
            RegistrationError: it is not ours, or of another graph.
        """
        saver = graph.checkpointer
        if not isinstance(saver, InterruptSaver) or saver.hub is not self.hub or saver.graph != self.graph_name:
            raise RegistrationError(
                f"the answering graph of {self.graph_name!r} runs only over interrupts.checkpointer(saver,"
                f" graph={self.graph_name!r}); under an Agent Server name a factory that returns it as"
                ' "checkpointer": {"path": ...} in langgraph.json'
            )
        if not saver.guarded:
            check_graph(self.hub, graph)
        return saver

    def take(
        self, graph: Any, saver: InterruptSaver, command: Any, config: Mapping[str, Any], kwargs: dict[str, Any]
    ) -> Effects[None]:
        """Take the answer, and drive the thread with it.

        Args:
            graph: the author's graph, as this copy of the answering graph has it.
            config: the run's, with what is bound to the graph.
            kwargs: for the graph's own call.
        """
        arrived = self.hub.now()
        configurable = config.get("configurable") or {}
        check_plain(command, configurable)
        thread_id = str(configurable["thread_id"])
        caller = self._caller(config)
        rows, driven = yield from transact(self.hub.operations.reading.load_answers, self.graph_name, thread_id)
        if (yield from self._is_for_others(command.resume, rows, thread_id)):
            yield from RunGraph(command, dict(config), kwargs)
            return
        ours = (*TENANT_KEYS, "checkpoint_id", "checkpoint_ns")
        kept = {key: value for key, value in configurable.items() if key not in ours}
        kwargs = {**kwargs, "config": {**config, "configurable": kept}}
        deliverer = Deliverer(self.hub, graph, saver)
        deliverer.check_kwargs(kwargs, thread_id)
        try:
            pairs = yield from self._meant(command.resume, rows, caller.scope, driven=driven, arrived=arrived)
            held = None
            if len(pairs) == 1:
                answer = (pause_event(self.hub, pairs[0][0]).pause_token, pairs[0][1], caller.scope, caller.actor, None)
                _, _, held = yield from self._redeemer.answer(*answer, hold=True, breakpoints=breakpoints_of(kwargs))
            else:
                tokens = [(pause_event(self.hub, row).pause_token, answer) for row, answer in pairs]
                yield from answer_many(self.hub, self._redeemer, tokens, caller.scope, caller.actor, lambda _: None)
        except REFUSALS as error:
            if self._on_refused == "raise":
                raise
            yield from self._ask_again(graph, thread_id, kwargs, error)
            return
        delivery = yield from deliverer.deliver(thread_id, kwargs, held=held)
        if {row["interrupt_id"] for row, _ in pairs} & set(delivery.unused):
            raise AnswerUnused("the answer was accepted and recorded, but the graph finished without using it")

    def _caller(self, config: Mapping[str, Any]) -> Identity:
        if self._identity is None:
            return Identity(self.hub.scope_of_run(config))
        caller = self._identity(config)
        if not isinstance(caller, Identity):
            raise RegistrationError(f"identity must return an Identity, not {type(caller).__name__}")
        return caller

    def _is_for_others(self, resume: Any, rows: Sequence[PauseRow], thread_id: str) -> Effects[bool]:
        """Whether it resumes native questions that no point covers: those are LangGraph's own affair."""
        answers = by_id(resume)
        if answers is None and any(row["state"] == "pending" for row in rows):
            return False
        head = yield from GetTuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
        known = {row["langgraph_id"] for row in rows}
        waiting = waiting_in(read_tasks(head.pending_writes)) if head is not None else {}
        others = {i.id for standing in waiting.values() for i in standing} - known
        return bool(others) if answers is None else set(answers) <= others

    def _meant(
        self,
        resume: Any,
        rows: Sequence[PauseRow],
        scope: FrameworkTenantScope,
        *,
        driven: bool,
        arrived: datetime,
    ) -> Effects[list[tuple[PauseRow, Any]]]:
        """The questions that are answered, each with its answer.

        Raises:
            ScopeMismatch: the caller may not answer one of them.
        """
        answers = by_id(resume)
        if answers is None and not self._bare:
            raise UsageError("a bare answer is not taken here; send {interrupt id: answer}")
        pairs = matched(answers or {}, rows)
        if answers is None:
            pairs = [(the_one_waiting(rows, driven=driven, arrived=arrived), resume)]
        for row, _ in pairs:
            if not self._may_answer(scope, row):
                yield from record_refusal(self.hub, row, ScopeMismatch.code, {"name": row["name"]}, scope.scope_hash)
                raise ScopeMismatch("a question of this thread belongs to another scope")
        return pairs

    def _may_answer(self, scope: FrameworkTenantScope, row: PauseRow) -> bool:
        owner = scope_of(row)
        point = self.hub.registry.get(row["name"])
        return scope == owner or bool(point and point.cross_scope_allowed and scope.contains(owner))

    def _ask_again(self, graph: Any, thread_id: str, kwargs: Mapping[str, Any], error: InterruptError) -> Effects[None]:
        state = yield from ReadState({"configurable": {"thread_id": thread_id}})
        for chunk in asked_again(graph, kwargs, state, refusal(error)):
            yield from Emit(chunk)


class AnsweringGraph(Pregel[Any, Any, Any, Any]):
    """An author's compiled graph that answers. Made by `ResumeAdapter.as_graph`; what it inherits is the author's."""

    if TYPE_CHECKING:
        _answering: Answering

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        """Another one with these attributes changed; it takes answers as this one does, and delivers them through itself."""
        return names.graph_as(type(self), self, update)

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002 - LangGraph's name
        """As the author's graph; an answer goes through the adapter."""
        saver = self._answering.saver_of(self)
        if not is_resume(input):
            return super().stream(input, config, **kwargs)
        effects, backend = self._taking(saver, input, config, kwargs)
        return perform_stream(effects, backend)

    def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002
        """`stream` for coroutines: yields and raises the same."""
        saver = self._answering.saver_of(self)
        if not is_resume(input):
            return super().astream(input, config, **kwargs)
        effects, backend = self._taking(saver, input, config, kwargs)
        return aperform_stream(effects, backend)

    def _taking(
        self, saver: InterruptSaver, command: Any, config: Any, kwargs: dict[str, Any]
    ) -> tuple[Effects[None], Backend]:
        plain: Any = names.graph_as(type(self).__mro__[2], self, without=("_answering",))
        merged = merge_configs(self.config, config)
        given = {key: value for key, value in kwargs.items() if value is not None}
        effects = self._answering.take(plain, saver, command, merged, given)
        return effects, Backend(self._answering.hub.database, saver.inner, plain)


def answering_class(plain: type[Any]) -> type[AnsweringGraph]:
    """The answering kind of an author's class of graph: it is still accepted wherever that one is."""
    return type(f"Answering{plain.__name__}", (AnsweringGraph, plain), {"__doc__": AnsweringGraph.__doc__})


def answering_graph(graph: Any, answering: Answering, *, checkpointer: Any) -> AnsweringGraph:
    """The answering graph of an author's compiled graph."""
    update = {"_answering": answering, "checkpointer": checkpointer}
    return names.graph_as(answering_class(type(graph)), graph, update)
