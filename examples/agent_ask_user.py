"""An agent that asks its user with a tool, and goes on with the answers.

What it shows: the model calls the tool `ask_user` twice in one message; both questions are open at the same time and are
answered in any order; each answer comes back to the model as JSON, under the call that asked. A label that was not offered is
refused and costs nothing.

What it needs: `pip install langchain`. No model and no network: the model follows a script.

How to run: `python examples/agent_ask_user.py`. At a terminal it asks you; elsewhere it takes the last option of each
question. It works in a temporary directory and removes it.

What it prints: the questions, the answers, what the model is told. Never a token.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from symfonic_interrupts import AskUserQuestion, Interrupts
from symfonic_interrupts.errors import ResponseInvalid
from symfonic_interrupts.events import AskUserQuestionEvent


class ScriptedModel(GenericFakeChatModel):
    """Stands for your chat model."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def ask(id_: str, question: str, *labels: str) -> dict[str, Any]:
    """A tool call as a model would make it. It does not number its questions: the library does."""
    options = [{"label": label} for label in labels]
    return {"name": "ask_user", "args": {"questions": [{"question": question, "options": options}]}, "id": id_}


SCRIPT = [
    AIMessage(
        content="",
        tool_calls=[
            ask("call-1", "Which room?", "Lab", "Hall", "Garden"),
            ask("call-2", "At what time?", "Nine", "Noon"),
        ],
    ),
    AIMessage(content="The room is booked."),
]


def choose(question: AskUserQuestion) -> str:
    """What the person picks."""
    labels = [option.label for option in question.options]
    while sys.stdin.isatty():
        reply = input(f"   {question.question} {'/'.join(labels)}: ").strip()
        if reply in labels:
            return reply
    return labels[-1]


def answer(question: AskUserQuestion, label: str) -> dict[str, Any]:
    return {"answers": [{"question_id": question.id, "selections": [label], "other": None}]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Interrupts.local(Path(folder) / "interrupts.db") as interrupts:
        agent = create_agent(
            ScriptedModel(messages=iter(SCRIPT)),
            tools=[interrupts.ask_user_tool()],
            checkpointer=interrupts.checkpointer(InMemorySaver()),
        )
        adapter = interrupts.resume_adapter(agent)

        print("1. The agent runs until it asks.")
        agent.invoke(
            {"messages": [{"role": "user", "content": "Book a room."}]}, {"configurable": {"thread_id": "chat-1"}}
        )
        asked = {event.tool_call_id: event for event in adapter.pending() if isinstance(event, AskUserQuestionEvent)}
        for call_id, event in sorted(asked.items(), key=lambda item: str(item[0])):
            (question,) = event.request.questions
            print(f"   {call_id} asks: {question.question} {[option.label for option in question.options]}")

        print("2. A label that was not offered.")
        (question,) = asked["call-2"].request.questions
        try:
            adapter.answer(asked["call-2"].pause_token, answer(question, "Midnight"))
        except ResponseInvalid as error:
            print(f"   refused ({error.code}), the question stays open")

        print("3. The user answers the second question first, then the other.")
        for call_id in ("call-2", "call-1"):
            (question,) = asked[call_id].request.questions
            label = choose(question)
            adapter.answer(asked[call_id].pause_token, answer(question, label), actor="user")
            print(f"   {call_id}: {label}")

        print("4. The agent goes on with both.")
        delivery = adapter.deliver("chat-1")
        for message in delivery.output["messages"]:
            if isinstance(message, ToolMessage):
                print(f"   {message.tool_call_id} is told {message.content}")
        print("   The agent:", delivery.output["messages"][-1].content)


if __name__ == "__main__":
    main()
