"""What an author holds: a point that asks, in a node, a tool or a subgraph, and returns the answer.

`pause` runs again with its node, from the start, for every answer: it finds the answer that was given to exactly this
question, or asks it. It never returns an answer given to another payload.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt, is_invalid_resume
from langgraph.runtime import get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.decorating import Decorator
from symfonic_interrupts.asking.envelope import Envelope
from symfonic_interrupts.canonical import sha256
from symfonic_interrupts.core.executions import Answer, Execution, Question
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import ReceiptInvalid, RegistrationError, ResponseInvalid, ResumeRefused, UsageError
from symfonic_interrupts.json_models import errors_of, summary_of
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.tokens.receipt import Receipt

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


class Approval(BaseModel, Generic[R]):
    """An answer with the proof that it was given: what `ask` returns and `require` checks. JSON-ready.

    Attributes:
        response: the answer.
        receipt: the signed statement of what was answered, where, and by whom.
        actor: who answered, as the application named them, or None.
        answered_at: when (UTC).
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    response: R = Field(repr=False)
    receipt: dict[str, Any] = Field(repr=False)
    actor: str | None = Field(repr=False)
    answered_at: datetime


class InterruptPoint(Generic[P, R]):
    """A registered place where a graph waits for a person. Made by `Interrupts.register_interrupt`."""

    def __init__(self, hub: Hub, registration: InterruptRegistration) -> None:
        self.registration = registration
        self._hub = hub
        self._envelope = Envelope.of(hub, registration.response_schema)

    @property
    def name(self) -> str:
        """The point's name."""
        return self.registration.name

    def __repr__(self) -> str:
        return f"InterruptPoint({self.name!r})"

    def pause(self, payload: P) -> R:
        """Wait for a person, and return the answer.

        Args:
            payload: what is shown; an instance of the point's `payload_schema`. Computed the same way at every pass.

        Raises:
            GraphInterrupt: LangGraph's own, while there is no answer; let it pass.
            PayloadInvalid: another model, no JSON form, or too large.
            ScopeRequired: the run names no tenant and there is no default.
            FeatureDisabled: custom points are off.
            RegistrationError: not in a graph whose checkpointer is `interrupts.checkpointer(...)`.
            UsageError: not inside a node, task or tool of a running graph.
        """
        return self._response(self._ask(payload)[0])

    def interrupt(self, value: Any, *, response_schema: Any = None) -> Any:
        """`langgraph.types.interrupt` with the safety of `pause`: `interrupt = point.interrupt` guards a node as it is.

        Args:
            value: what is shown; fits the point's `payload_schema`, as an instance or as data.
            response_schema: a type that the answer is parsed with, as LangGraph does. What the point's own response_schema
                accepts must fit it, because the token is spent by then. A JSON Schema has no effect: clients see the point's.

        Returns:
            The answer as JSON data, or what `response_schema` makes of it.

        Raises:
            PayloadInvalid: the value does not fit; the message names the node.
            ResponseInvalid: the answer does not fit `response_schema`.
            GraphInterrupt, ...: see `pause`.
        """
        _, info = _running()
        untyped = response_schema is None or isinstance(response_schema, dict)
        parser = None if untyped else TypeAdapter(response_schema)  # before anybody is asked: it may be no type
        payload = self.registration.native_payload(value, node=names.node_path(info.checkpoint_ns))
        answer, _ = self._ask(cast(P, payload))
        self._response(answer)  # an answer that the schema accepts no more is not handed on
        data = json.loads(answer.response)
        return data if parser is None else self._parsed(data, parser)

    def ask(self, payload: P) -> Approval[R]:
        """`pause`, returning the answer with its proof, for `require` in a later node."""
        answer, _ = self._ask(payload)
        return Approval[Any](
            response=self._response(answer),
            receipt={**answer.sealed, "response": answer.response},
            actor=answer.receipt.actor,
            answered_at=datetime.fromisoformat(answer.receipt.answered_at),
        )

    def require(self, approval: Approval[R] | Mapping[str, Any], payload: P) -> R:
        """The response, if exactly this payload was answered through the adapter for this point, thread and scope.

        Args:
            approval: what `ask` returned, also after it travelled through the state as a dict.
            payload: what is about to be done.

        Raises:
            ReceiptInvalid: nothing of the kind was answered.
        """
        self._hub.database.check_open()
        sealed = approval.receipt if isinstance(approval, Approval) else _receipt_in(approval)
        text = sealed.get("response") if isinstance(sealed, dict) else None
        receipt = Receipt.unseal({k: v for k, v in sealed.items() if k != "response"}, self._hub.keys)
        config = cast(Mapping[str, Any], get_config())
        saver = self._saver(config)
        saver.door.check_not_cached(self.name, config["configurable"])
        expected = {
            "name": self.name,
            "audience": self._hub.audience(saver.graph),
            "thread_id": str(config["configurable"].get("thread_id")),
            "scope_hash": self._hub.scope_of_run(config).scope_hash,
            "request_hash": sha256(self.registration.payload_text(payload)),
        }
        for field, value in expected.items():
            if getattr(receipt, field) != value:
                raise ReceiptInvalid(f"{self.name}: the approval was given for another {field.removesuffix('_hash')}")
        if not isinstance(text, str) or not receipt.covers(text):
            raise ReceiptInvalid(f"{self.name}: the approval's response was changed")
        response = self.registration.response_from_text(text)
        shown = approval.response if isinstance(approval, Approval) else approval.get("response")
        if _as_json(shown) != _as_json(response):
            raise ReceiptInvalid(f"{self.name}: the approval's response was changed")
        return cast(R, response)

    def node(
        self,
        payload: Callable[[Any], P] | Callable[[Any], Awaitable[P]],
        *,
        when: Callable[[Any], bool] | None = None,
    ) -> Decorator:
        """Make `function(state, decision, ...)` a node that asks first; its body runs once, after the answer.

        Args:
            payload: takes the state, returns what is shown. Pure: it runs on every pass. May be async for an async function.
            when: takes the state, returns whether to ask at all. Where false, the body gets None as its decision. Not async.

        Raises:
            RegistrationError: here or when the decorator is applied: an async `when`, an async `payload` for a sync function, a
                method, a generator, an object with an async `__call__`, other parameters than (state, decision) and what
                LangGraph injects, a `decision` annotated as another type than `response_schema` (with `when`: or None).
        """
        return Decorator(self.name, self.registration.response_schema, self.pause, payload, when)

    # -- asking

    def _ask(self, payload: P) -> tuple[Answer, Question]:
        hub = self._hub
        hub.database.check_open()
        self.registration.check(hub.config)
        text = self.registration.payload_text(payload, limit=hub.config.max_payload_bytes)
        config, info = _running()
        saver = self._saver(config)
        saver.door.check_not_cached(self.name, config["configurable"])
        execution = hub.executions.of(saver.graph, info, config["configurable"])
        if not saver.keeps(execution.thread_id, execution.ns):
            raise RegistrationError(
                f"{self.name} cannot pause here: this graph is compiled with checkpointer=False, so its interrupts change at"
                " every run and no answer would reach them; compile it without checkpointer=False"
            )
        scope = hub.scope_of_run(config)
        with execution.lock:
            question = execution.ask(self.name, text, sha256(text), scope, hub.now())
            while True:
                if execution.refused is not None:
                    raise execution.refused
                answer = execution.take(question)
                if answer is not None:
                    return answer, question
                self._receive(execution, question)

    def _receive(self, execution: Execution, question: Question) -> None:
        marker = {
            "type": self.registration.shapes.marker_type,
            "name": self.name,
            "interrupt_id": question.interrupt_id,
            "task_id": question.leaf_task_id,
            "payload": json.loads(question.payload),
        }
        marker = {**self.registration.presented(question.payload), **marker}
        try:
            envelope = interrupt(marker, response_schema=self._envelope)
        except GraphInterrupt as asked:
            execution.raised = asked
            execution.surfaced.update(surfaced.id for surfaced in asked.args[0])
            raise
        except ValidationError as error:
            if not is_invalid_resume(error):
                raise
            # all further calls of this execution are refused, too
            execution.refused = ResumeRefused(f"{self.name}: {error.errors(include_input=False)[0]['msg']}")
            execution.refused_question = question
            raise execution.refused from error
        execution.receive(envelope.opened)

    def _response(self, answer: Answer) -> R:
        return cast(R, self.registration.response_from_text(answer.response))

    def _parsed(self, data: Any, parser: TypeAdapter[Any]) -> Any:
        try:
            return parser.validate_python(data)
        except ValidationError as error:
            message = (
                f"{self.name}: the answer does not fit the response_schema of this interrupt(): {summary_of(error)}"
            )
            problem = ResponseInvalid(message, errors=errors_of(error))
        raise problem  # outside: the context would show the answer

    def is_needed_in(self, config: Mapping[str, Any]) -> bool:
        """Whether only this point can guard a question of the running task: its saver is of this point's `Interrupts`, and no
        door stands before its node that would look at what a plain `interrupt()` is answered with."""
        configurable = config["configurable"]
        saver: Any = names.checkpointer_of(configurable)
        return getattr(saver, "hub", None) is self._hub and not saver.door.has_passed(configurable)

    def _saver(self, config: Mapping[str, Any]) -> Any:
        """The wrapped saver of the running graph. Raises RegistrationError where it is not of this point's `Interrupts`."""
        saver: Any = names.checkpointer_of(config["configurable"])
        if getattr(saver, "hub", None) is not self._hub:
            if config["configurable"].get("thread_id") is None:
                remedy = (
                    "compile the graph with checkpointer=interrupts.checkpointer(saver), and run it with a thread_id"
                )
            else:
                remedy = "its checkpointer is not from this Interrupts; wrap it: interrupts.checkpointer(saver)"
            raise RegistrationError(f"{self.name} cannot pause here: {remedy}")
        return saver


def _running() -> tuple[Mapping[str, Any], Any]:
    try:
        info = get_runtime().execution_info
        config = cast(Mapping[str, Any], get_config())
    except RuntimeError:
        info = None
    if info is None:
        raise UsageError("a point pauses only inside a node, task or tool of a running graph") from None
    return config, info


def _receipt_in(approval: object) -> dict[str, Any]:
    receipt = approval.get("receipt") if isinstance(approval, Mapping) else None
    if not isinstance(receipt, dict):
        raise ReceiptInvalid("this is not an approval; pass what ask() returned")
    return receipt


def _as_json(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
