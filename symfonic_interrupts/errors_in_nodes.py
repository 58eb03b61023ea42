"""The errors of `errors` that a node raises to LangGraph: it passes them by error handlers and retry policies."""

from __future__ import annotations

from langgraph.errors import GraphBubbleUp

from symfonic_interrupts.errors import InterruptError


class ResumeRefused(InterruptError, GraphBubbleUp):
    """A resume brought a node something that did not come through the adapter. The pause stays open, and its token works.

    LangGraph passes it by error handlers and retry policies: neither may go on without the answer.
    """

    code = "resume_refused"
    http_status = 409
    recorded = False


class PauseSwallowed(InterruptError, GraphBubbleUp):
    """A node finished although something in it had asked and was not answered, and the question cannot be asked any more.

    Something between the node and the question catches `Exception`. Nothing of the node is written; let `GraphInterrupt` pass.
    """

    code = "pause_swallowed"
    http_status = 500
