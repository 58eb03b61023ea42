"""LangChain's ways of asking a person, answered by tokens: its middleware, and LangGraph's `HumanInterrupt`."""

from symfonic_interrupts.contrib.langchain.hitl import (
    HITLAction,
    HITLActionRequest,
    HITLApprove,
    HITLCallRequest,
    HITLCallResponse,
    HITLDecision,
    HITLEdit,
    HITLReject,
    HITLRequest,
    HITLRespond,
    HITLResponse,
    HITLReviewConfig,
    register_hitl,
    validate_hitl_call_response,
    validate_hitl_response,
)
from symfonic_interrupts.contrib.langchain.human_interrupt import (
    HumanInterrupt,
    HumanInterruptConfig,
    HumanInterrupts,
    HumanResponses,
    register_human_interrupt,
    validate_human_responses,
)
from symfonic_interrupts.presenting import HumanAction, HumanResponse

__all__ = [
    "HITLAction",
    "HITLActionRequest",
    "HITLApprove",
    "HITLCallRequest",
    "HITLCallResponse",
    "HITLDecision",
    "HITLEdit",
    "HITLReject",
    "HITLRequest",
    "HITLRespond",
    "HITLResponse",
    "HITLReviewConfig",
    "HumanAction",
    "HumanInterrupt",
    "HumanInterruptConfig",
    "HumanInterrupts",
    "HumanResponse",
    "HumanResponses",
    "register_hitl",
    "register_human_interrupt",
    "validate_hitl_call_response",
    "validate_hitl_response",
    "validate_human_responses",
]
