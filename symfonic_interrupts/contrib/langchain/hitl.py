"""LangChain's `HumanInTheLoopMiddleware` answered by tokens, on an agent that nobody changes.

The middleware asks with LangGraph's own `interrupt()`: all gated tool calls of a message in one question (`batched`), or one
question per call (`per_call`). Here are both questions and both answers as schemas, and the checks that LangChain would make
only after the answer is given. Nothing here may accept an answer that the middleware then refuses: its token would be spent.

LangChain is not imported. Shapes: `langchain.agents.middleware.human_in_the_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as make_tool
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from symfonic_interrupts.asking.point import InterruptPoint
from symfonic_interrupts.contrib.langchain.asking import asks_with
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.interrupts import Interrupts

Tool = BaseTool | Callable[..., Any] | dict[str, Any]
"""What `create_agent` takes as a tool."""


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)  # a newer LangChain may show more


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class HITLActionRequest(_Shown):
    """A tool call that the model wants to make: the tool's name, its arguments, and a text for the reviewer."""

    name: str
    args: dict[str, Any]
    description: str = ""


class HITLReviewConfig(_Shown):
    """Which decisions are allowed for the tool `action_name`."""

    action_name: str
    allowed_decisions: list[str]


class HITLRequest(_Shown):
    """What is shown in `batched` mode: every gated tool call of one message, in the model's order."""

    action_requests: list[HITLActionRequest]
    review_configs: list[HITLReviewConfig]


class HITLCallRequest(_Shown):
    """What is shown in `per_call` mode: one tool call."""

    type: Literal["tool_approval"] = "tool_approval"
    tool_call_id: str
    name: str
    args: dict[str, Any]
    description: str = ""


class HITLAction(_Answered):
    """A tool call as the reviewer wants it."""

    name: str
    args: dict[str, Any]


class HITLApprove(_Answered):
    """Run the tool as the model asked."""

    type: Literal["approve"] = "approve"


class HITLEdit(_Answered):
    """Run the tool with these arguments instead."""

    type: Literal["edit"] = "edit"
    edited_action: HITLAction


class HITLReject(_Answered):
    """Do not run the tool. `message` is the reason that the model is told; empty: none."""

    type: Literal["reject"] = "reject"
    message: str = ""


class HITLRespond(_Answered):
    """Do not run the tool; `message` is what the model gets as its result."""

    type: Literal["respond"] = "respond"
    message: str


HITLDecision = Annotated[HITLApprove | HITLEdit | HITLReject | HITLRespond, Field(discriminator="type")]
"""What a reviewer decides about one tool call, told apart by `type`."""


class HITLResponse(_Answered):
    """The answer in `batched` mode: one decision for each tool call that was shown, in the same order."""

    decisions: list[HITLDecision]


class HITLCallResponse(RootModel[HITLDecision]):
    """The answer in `per_call` mode: the decision itself."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


def validate_hitl_response(response: HITLResponse, request: HITLRequest) -> None:
    """`validate_response` for `batched` mode: what the middleware would refuse, and edits that name another tool.

    Raises:
        ValueError: another number of decisions than of calls, a decision that the call's review config does not allow.
    """
    asked, decided = len(request.action_requests), len(response.decisions)
    if asked != decided:
        raise ValueError(f"decisions: {asked} tool calls need {asked} decisions in their order, not {decided}")
    allowed = {config.action_name: config.allowed_decisions for config in request.review_configs}
    for index, (action, decision) in enumerate(zip(request.action_requests, response.decisions, strict=True)):
        _check(decision, action.name, allowed.get(action.name, ()), f"decisions.{index}")


def validate_hitl_call_response(response: HITLCallResponse, request: HITLCallRequest) -> None:
    """`validate_response` for `per_call` mode, as far as the question tells: an edit must not name another tool.

    The question does not say which decisions and arguments its tool allows; `register_hitl` checks them too.

    Raises:
        ValueError: an edit of another tool.
    """
    _check(response.root, request.name, None, "decision")


class ReviewMiddleware(Protocol):
    """What `register_hitl` reads of a `HumanInTheLoopMiddleware`."""

    @property
    def name(self) -> str:
        """The middleware's name in the agent's nodes."""
        ...

    @property
    def interrupt_on(self) -> Mapping[str, Any]:
        """By tool, what may be decided."""
        ...


def register_hitl(
    interrupts: Interrupts,
    middleware: ReviewMiddleware,
    *,
    name: str = "tool_approval",
    tools: Sequence[Tool] = (),
    nodes: Sequence[str] | None = None,
    **registration: Any,
) -> InterruptPoint[Any, Any]:
    """Register the point that covers an agent's `HumanInTheLoopMiddleware`, in the mode that the middleware is in.

    From then on the middleware asks with the point itself where no guard can stand before its node: in agents that a tool
    calls. Make those agents after this call. Under a saver that is not of these `interrupts` it asks as LangChain does.

    Args:
        interrupts: where; also what the agent's checkpointer is wrapped with.
        middleware: the one that `create_agent` is given.
        name: the point's name.
        tools: the agent's tools. In `per_call` mode an edit's arguments are checked with the tool's own schema, and a tool that
            is not here cannot be edited: LangGraph would refuse wrong arguments, when the token is spent.
        nodes: where the agent asks. Not needed: every agent that carries this very middleware is found, whether it is the graph
            itself or a node at any depth, and in an agent that a tool calls the middleware asks with the point.
        registration: further arguments of `register_interrupt`, such as `ttl` or, in `per_call` mode, `on_expire`.

    Raises:
        FeatureDisabled: `FrameworkConfig.experimental_interrupt` is off.
        RegistrationError: no such middleware; or a default answer that does not fit every question, as in `batched` mode,
            where the number of calls differs.
    """
    gated = getattr(middleware, "interrupt_on", None)
    mode = getattr(middleware, "interrupt_mode", "batched")
    if not isinstance(gated, Mapping) or mode not in ("batched", "per_call"):
        raise RegistrationError(f"{name}: middleware must be a HumanInTheLoopMiddleware, batched or per_call")
    default = registration.get("on_expire")
    if mode == "batched":
        if default is not None:
            raise RegistrationError(
                f"{name}: on_expire cannot fit questions with any number of calls; use interrupt_mode='per_call'"
            )
        point: InterruptPoint[Any, Any] = interrupts.register_interrupt(
            name,
            payload_schema=HITLRequest,
            response_schema=HITLResponse,
            validate_response=validate_hitl_response,
            **_where(f"{middleware.name}.after_model", middleware, nodes),
            **{"present": _AsLangChainDoes(), **registration},
        )
        asks_with(point, middleware)
        return point
    allowed = {tool: tuple(config["allowed_decisions"]) for tool, config in gated.items()}
    if isinstance(default, HITLCallResponse):
        kind = default.root.type
        if unfit := [tool for tool, kinds in allowed.items() if kind == "edit" or kind not in kinds]:
            raise RegistrationError(f"{name}: on_expire: {kind} is not allowed for {', '.join(sorted(unfit))}")
    point = interrupts.register_interrupt(
        name,
        payload_schema=HITLCallRequest,
        response_schema=HITLCallResponse,
        validate_response=_call_validator(allowed, tools),
        **_where("tools", middleware, nodes),
        **registration,
    )
    asks_with(point, middleware)
    return point


class _AsLangChainDoes:
    """Where the point asks itself, its marker has the keys by which clients know a question of the middleware."""

    def shown(self, payload: HITLRequest, data: Any) -> Mapping[str, Any]:
        return {key: data[key] for key in ("action_requests", "review_configs")}

    def read(self, answer: Any, payload: HITLRequest, data: Any) -> Any:
        return answer


def _where(node: str, middleware: ReviewMiddleware, nodes: Sequence[str] | None) -> dict[str, Any]:
    return {"nodes": (node,), "nodes_of": middleware} if nodes is None else {"nodes": nodes}


def _call_validator(
    allowed: Mapping[str, Sequence[str]], tools: Sequence[Tool]
) -> Callable[[HITLCallResponse, HITLCallRequest], None]:
    made = [tool if isinstance(tool, BaseTool) else make_tool(tool) for tool in tools if not isinstance(tool, dict)]
    schemas = {tool.name: tool.tool_call_schema for tool in made}

    def validate(response: HITLCallResponse, request: HITLCallRequest) -> None:
        decision, tool = response.root, request.name
        _check(decision, tool, allowed.get(tool, ()), "decision")
        if isinstance(decision, HITLEdit):
            if tool not in schemas:
                raise ValueError(
                    f"edit: the arguments of {tool} cannot be checked; pass register_hitl its tool in `tools`"
                )
            schema = schemas[tool]
            if isinstance(schema, type):
                TypeAdapter(schema).validate_python(decision.edited_action.args)

    return validate


def _check(decision: Any, tool: str, allowed: Sequence[str] | None, where: str) -> None:
    if allowed is not None and decision.type not in allowed:
        raise ValueError(f"{where}: {tool} allows {', '.join(allowed) or 'no decision'}, not {decision.type}")
    if isinstance(decision, HITLEdit) and decision.edited_action.name != tool:
        raise ValueError(
            f"{where}.edited_action.name: an edit changes the arguments of {tool}; it cannot name another tool"
        )
