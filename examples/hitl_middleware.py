"""LangChain's human-in-the-loop middleware, answered by tokens, on an agent whose code is not changed.

What it shows: the agent wants to send a mail and to delete a file; the middleware stops both with LangGraph's own
`interrupt()`; `register_hitl` covers that place. Decisions that the middleware does not allow are refused and cost nothing; a
good answer edits one call and rejects the other; the same token is refused the second time.

What it needs: `pip install langchain`. No model and no network: the model follows a script.

How to run: `python examples/hitl_middleware.py`. It works in a temporary directory and removes it.

What it prints: what the agent wants, each answer and what became of it, what the tools did. Never a token.
"""

import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from symfonic_interrupts import InterruptError, Interrupts
from symfonic_interrupts.contrib.langchain import register_hitl


class ScriptedModel(GenericFakeChatModel):
    """Stands for your chat model."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    print(f"   [send_mail] to {to}: {text}")
    return f"sent to {to}"


def delete_file(path: str) -> str:
    """Delete a file."""
    print(f"   [delete_file] {path}")
    return f"deleted {path}"


SCRIPT = [
    AIMessage(
        content="",
        tool_calls=[
            {"name": "send_mail", "args": {"to": "everyone@example.org", "text": "It is done."}, "id": "call-1"},
            {"name": "delete_file", "args": {"path": "report.txt"}, "id": "call-2"},
        ],
    ),
    AIMessage(content="The mail went to Ann, and the report stays."),
]


def main() -> None:
    middleware = HumanInTheLoopMiddleware(
        {"send_mail": True, "delete_file": {"allowed_decisions": ["approve", "reject"]}}
    )
    with tempfile.TemporaryDirectory() as folder, Interrupts.local(Path(folder) / "interrupts.db") as interrupts:
        register_hitl(
            interrupts, middleware
        )  # the one line that the agent's owner adds, beside the wrapped checkpointer
        agent = create_agent(
            ScriptedModel(messages=iter(SCRIPT)),
            tools=[send_mail, delete_file],
            middleware=[middleware],
            checkpointer=interrupts.checkpointer(InMemorySaver()),
        )
        adapter = interrupts.resume_adapter(agent)

        print("1. The agent runs until it wants to use its tools.")
        agent.invoke(
            {"messages": [{"role": "user", "content": "Tell Ann, and tidy up."}]},
            {"configurable": {"thread_id": "chat-1"}},
        )
        (event,) = adapter.pending(thread_id="chat-1")
        for action in event.payload["action_requests"]:
            print(f"   It wants {action['name']} with {action['args']}")

        edit = {
            "type": "edit",
            "edited_action": {"name": "send_mail", "args": {"to": "ann@example.org", "text": "It is done."}},
        }
        answers: list[tuple[str, list[dict[str, Any]]]] = [
            ("one decision for two calls", [{"type": "approve"}]),
            ("an answer in the tool's name", [edit, {"type": "respond", "message": "gone"}]),
            ("edit the mail, keep the file", [edit, {"type": "reject", "message": "We still need it."}]),
            ("the same token again", [{"type": "approve"}, {"type": "approve"}]),
        ]
        for number, (what, decisions) in enumerate(answers, start=2):
            print(f"{number}. A reviewer answers: {what}.")
            try:
                state = adapter.invoke(event.pause_token, {"decisions": decisions}, actor="kim")
            except InterruptError as error:
                print(f"   refused ({error.code}): {error}")
                continue
            for message in state["messages"]:
                if isinstance(message, ToolMessage):
                    print(f"   {message.tool_call_id}: {message.status}")
            print("   The agent:", state["messages"][-1].content)


if __name__ == "__main__":
    main()
