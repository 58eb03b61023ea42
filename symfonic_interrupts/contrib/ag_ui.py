"""An AG-UI agent over the answering graph: any AG-UI client, CopilotKit too, shows the questions and answers them.

    agent = InterruptAgent(adapter, name="refunds")
    add_interrupt_agent(app, agent, "/agent", identity=who_is_calling)

A run that ends with questions says so in both of the protocol's ways: an event `on_interrupt` for each, and the `interrupts` of
the run's outcome, each with id, message, JSON Schema of the answer, and the time at which it ends. Answers come as `resume`, or
in `forwardedProps.command.resume`, and go through the adapter. Nothing of another scope's question is shown, and no token.
Needs the extra: `pip install 'symfonic-interrupts[ag-ui]'`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from langgraph.types import Command

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.adapter.answering_graph import REFUSALS
from symfonic_interrupts.adapter.resume_values import by_id
from symfonic_interrupts.adapter.stream_chunks import Refusal, refusal
from symfonic_interrupts.core.checkpoints import is_marker
from symfonic_interrupts.core.results import PauseView, view_of
from symfonic_interrupts.core.rows import check_authentic, scope_of
from symfonic_interrupts.errors import InterruptError, RegistrationError, ScopeMismatch, UsageError
from symfonic_interrupts.identity import Identity
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import PauseWithAnswer

try:
    from ag_ui.core import CustomEvent, EventType, RunAgentInput, RunErrorEvent, RunStartedEvent
    from ag_ui.encoder import EventEncoder
    from ag_ui_langgraph import LangGraphAgent
    from fastapi import APIRouter, Depends, FastAPI, Request
    from fastapi.responses import StreamingResponse
except ImportError as error:
    raise ImportError(
        f"symfonic_interrupts.contrib.ag_ui needs its extra: pip install 'symfonic-interrupts[ag-ui]' ({error})"
    ) from error

__all__ = ["InterruptAgent", "add_interrupt_agent", "message_of"]

CALLER = "symfonic_interrupts_caller"
"""In a run's `configurable`: the Identity of the request that runs it. A client cannot set it."""

OURS = "symfonic_interrupts"
"""In the metadata of an AG-UI interrupt: what the protocol has no field for."""

ON_INTERRUPT = "on_interrupt"


def message_of(question: PauseView) -> str:
    """The text for the one who is to answer: the payload's `message`, `question`, `description` or `title`, else the name."""
    payload = question.payload if isinstance(question.payload, dict) else {}
    texts = (payload.get(key) for key in ("message", "question", "description", "title"))
    return next((text for text in texts if isinstance(text, str) and text), question.name.replace("_", " "))


class InterruptAgent(LangGraphAgent):
    """The agent of one graph. It is served by `add_interrupt_agent`, or, with one scope for all, by ag-ui-langgraph's endpoint.

    An answer that is refused spends nothing: the run ends with the question again and an event `answer_refused`, whose value
    has the error's `code`, `message` and `errors`. An entry that is `cancelled` answers nothing: its question stays open. Other
    errors end the run as RUN_ERROR with the error's code.

    Args:
        adapter: of the graph.
        name, description: the agent's, for clients.
        message: what a question is shown with.
        bare: take answers in `forwardedProps.command.resume` that name no question; see `ResumeAdapter.as_graph`.
        config: of every run. Without a caller from `add_interrupt_agent` its scope is the one that asks and answers.
        enable_legacy_on_interrupt_event: say questions as events `on_interrupt`.
        emit_interrupt_outcome: say them in the run's outcome. False for clients that answer only by
            `forwardedProps.command.resume`: those may wait in vain once they see an outcome.
        options: further ones of `ag_ui_langgraph.LangGraphAgent`.
    """

    def __init__(
        self,
        adapter: ResumeAdapter,
        *,
        name: str,
        description: str | None = None,
        message: Callable[[PauseView], str] = message_of,
        bare: bool = True,
        config: Mapping[str, Any] | None = None,
        enable_legacy_on_interrupt_event: bool = True,
        emit_interrupt_outcome: bool = True,
        graph: Any = None,
        **options: Any,
    ) -> None:
        def who(config: Mapping[str, Any]) -> Identity:
            return _caller_of(adapter, config)

        graph = adapter.as_graph(identity=who, bare=bare, on_refused="raise") if graph is None else graph
        both = {"enable_legacy_on_interrupt_event": True, "emit_interrupt_outcome": True}
        super().__init__(name=name, description=description, graph=graph, config=dict(config or {}), **both, **options)
        self._adapter = adapter
        self._message = message
        self._as_events = enable_legacy_on_interrupt_event
        self._as_outcome = emit_interrupt_outcome or not enable_legacy_on_interrupt_event
        self._error: InterruptError | None = None
        self._made_with: dict[str, Any] = {
            **options,
            "name": name,
            "description": description,
            "message": message,
            "bare": bare,
            "config": config,
            "enable_legacy_on_interrupt_event": enable_legacy_on_interrupt_event,
            "emit_interrupt_outcome": emit_interrupt_outcome,
            "graph": graph,
        }

    def clone(self) -> Self:
        """This agent for one more run: what a run remembers is not shared."""
        return type(self)(self._adapter, **self._made_with)

    def called_by(self, caller: Identity) -> Self:
        """This agent for one more run, in the caller's scope; the caller's actor is the one who answers."""
        config = dict(self._made_with["config"] or {})
        scope = caller.scope
        whose = {"tenant_id": scope.tenant_id, "sub_tenant_id": scope.sub_tenant_id, "namespace": scope.namespace}
        configurable = {**(config.get("configurable") or {}), **whose, CALLER: caller}
        made_with = {**self._made_with, "config": {**config, "configurable": configurable}}
        return type(self)(self._adapter, **made_with)

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:  # noqa: A002 - AG-UI's name
        """The events of one run, as AG-UI has them."""
        begun = {"thread_id": input.thread_id, "run_id": input.run_id}
        try:
            given, sent = _answers_in(input)
            scope = _caller_of(self._adapter, self.config).scope
            if not sent:
                await self._rows(input.thread_id, scope)
        except InterruptError as error:
            yield RunStartedEvent(type=EventType.RUN_STARTED, **begun)
            yield _failed(error)
            return
        told: list[Any] = []
        async for event in super().run(given):
            if event.type == EventType.CUSTOM and event.name == ON_INTERRUPT:
                told.append(event)
            elif event.type == EventType.RUN_FINISHED:
                for last in await self._end(input.thread_id, scope, sent, told, event):
                    yield last
            elif event.type == EventType.RUN_ERROR and self._error is not None:
                yield _failed(self._error)
            else:
                yield event

    async def prepare_stream(self, *args: Any, **kwargs: Any) -> Any:
        """The run's stream, which ends where an answer was refused."""
        try:
            prepared = await super().prepare_stream(*args, **kwargs)
        except InterruptError as error:
            self._error = error
            raise
        if prepared.get("stream") is not None:
            prepared["stream"] = self._until_refused(prepared["stream"])
        return prepared

    async def _until_refused(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for event in stream:
                yield event
        except REFUSALS as error:
            self._error = error
        except InterruptError as error:
            self._error = error
            raise

    def _build_command_from_agui_resume(self, entries: Sequence[Any], **_: Any) -> Command[Any]:
        return Command(resume={entry.interrupt_id: entry.payload for entry in entries})

    async def _rows(self, thread_id: str, scope: FrameworkTenantScope) -> list[PauseWithAnswer]:
        """The thread's open and answered pauses, oldest first.

        Raises:
            ScopeMismatch: an open one is not the caller's to answer.
            StoreError: a row is not authentic.
        """
        hub = self._adapter.hub
        load = hub.operations.reading.load_answers
        rows, _ = await hub.database.arun(load, self._adapter.graph_name, thread_id)
        for row in rows:
            point, owner = hub.registry.get(row["name"]), scope_of(row)
            above = point is not None and point.cross_scope_allowed and scope.contains(owner)
            if row["state"] == "pending" and scope != owner and not above:
                raise ScopeMismatch("a question of this thread belongs to another scope")
            check_authentic(hub, row)
        return rows

    async def _end(
        self, thread_id: str, scope: FrameworkTenantScope, sent: _Sent, told: Sequence[Any], finished: Any
    ) -> list[Any]:
        """The last events of a run: why an answer was refused, the questions that stand, and RUN_FINISHED with them."""
        try:
            rows = await self._rows(thread_id, scope)
        except InterruptError as error:
            return [_failed(error)]
        why = refusal(self._error) if self._error is not None else None
        refused = [CustomEvent(type=EventType.CUSTOM, name="answer_refused", value=why)] if why is not None else []
        standing = finished.outcome.interrupts if finished.outcome is not None else []
        events: list[Any] = []
        interrupts: list[Any] = []
        for event, native in zip(told, standing, strict=True):
            ours = [row for row in rows if row["langgraph_id"] == native.id]
            if not ours and not is_marker(native.metadata["langgraph"]["raw"]):  # no point covers it
                events.append(event)
                interrupts.append(native)
            for row in ours:
                if row["state"] == "pending":
                    said = self._said(row, why if sent.is_for(row) else None)
                    interrupts.append(native.model_copy(update=said))
                    events.append(event.model_copy(update={"value": json.dumps(said), "raw_event": None}))
        outcome = finished.outcome.model_copy(update={"interrupts": interrupts}) if interrupts else None
        last = finished.model_copy(update={"outcome": outcome if self._as_outcome else None})
        return [*refused, *(events if self._as_events else []), last]

    def _said(self, row: PauseWithAnswer, refused: Refusal | None) -> dict[str, Any]:
        """A question in the protocol's words, as JSON data."""
        hub = self._adapter.hub
        question = view_of(row, hub.registry.named(row["name"]), hub.now())
        call = question.payload.get("tool_call_id") if isinstance(question.payload, dict) else None
        more = {"name": question.name, "payload": question.payload, "metadata": question.metadata}
        return {
            "id": question.interrupt_id,
            "reason": "input_required",
            "message": self._message(question),
            "tool_call_id": call if isinstance(call, str) else None,
            "response_schema": question.response_schema,
            "expires_at": question.expires_at.isoformat(),
            "metadata": {OURS: {**more, "refused": refused} if refused is not None else more},
        }


def add_interrupt_agent(
    app: FastAPI | APIRouter, agent: InterruptAgent, path: str = "/", *, identity: Callable[..., Any], **route: Any
) -> None:
    """Serve the agent: POST `path` takes AG-UI's `RunAgentInput` and streams the events of the run.

    Which threads a caller may run is for the application to say, in `identity` or a dependency in `route`. Here is only seen to
    that nobody is shown, or answers, an open question of another scope.

    Args:
        identity: the application's dependency that says who is calling; returns an Identity, or raises HTTPException.
        route: for `app.post`, such as `dependencies` or `name`.
    """

    @app.post(path, **route)
    async def run(input: RunAgentInput, request: Request, caller: Any = Depends(identity)) -> StreamingResponse:  # noqa: A002, B008
        if not isinstance(caller, Identity):
            raise RegistrationError(f"identity must return an Identity, not {type(caller).__name__}")
        encoder = EventEncoder(accept=request.headers.get("accept"))

        async def lines() -> AsyncIterator[str]:
            async for event in agent.called_by(caller).run(input):
                yield encoder.encode(event)

        return StreamingResponse(lines(), media_type=encoder.get_content_type())


@dataclass(frozen=True)
class _Sent:
    """Which questions a run's input answers: those with these ids, or `any`, or none."""

    ids: frozenset[str] = frozenset()
    any: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids) or self.any

    def is_for(self, row: PauseWithAnswer) -> bool:
        return self.any or bool(self.ids & {row["interrupt_id"], row["langgraph_id"]})


def _answers_in(given: Any) -> tuple[Any, _Sent]:
    """The input without its cancelled entries, and what it answers.

    Raises:
        UsageError: answers in both places, two to one question, or one to something that is no interrupt id.
    """
    command = (given.forwarded_props or {}).get("command")
    bare = command.get("resume") if isinstance(command, dict) else None
    if given.resume and bare is not None:
        raise UsageError("answers stand in resume and in forwardedProps.command.resume; send them in one of the two")
    if bare is not None:
        ids = by_id(bare)
        return given, _Sent(any=True) if ids is None else _Sent(frozenset(ids))
    entries = [entry for entry in given.resume or () if entry.status == "resolved"]
    answers = {entry.interrupt_id: entry.payload for entry in entries}
    if len(answers) < len(entries):
        raise UsageError("resume: two entries answer one interrupt")
    if entries and by_id(answers) is None:
        raise UsageError("resume: interruptId must be the id of an interrupt that a run ended with")
    return given.model_copy(update={"resume": entries or None}), _Sent(frozenset(answers))


def _caller_of(adapter: ResumeAdapter, config: Mapping[str, Any]) -> Identity:
    caller = (config.get("configurable") or {}).get(CALLER)
    return caller if isinstance(caller, Identity) else Identity(adapter.hub.scope_of_run(config))


def _failed(error: InterruptError) -> Any:
    return RunErrorEvent(type=EventType.RUN_ERROR, message=str(error), code=error.code)
