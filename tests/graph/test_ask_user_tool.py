"""A model asks the user with a tool; the answers come back under its call. Shown with a scripted chat model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from symfonic_interrupts import AskUserQuestionEvent
from tests.harness import Bench, pauses, thread

PLAN = {"question": "Which plan?", "options": [{"label": "small"}, {"label": "large"}]}
COLOR = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}], "allow_other": True}


class Scripted(GenericFakeChatModel):
    """Says what the script says, whatever it is asked."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def call(id_: str, **args: Any) -> dict[str, Any]:
    return {"name": "ask_user", "args": args, "id": id_, "type": "tool_call"}


def agent(bench: Bench, *messages: AIMessage) -> tuple[Any, Any]:
    script: Iterator[AIMessage] = iter(messages)
    graph = create_agent(
        Scripted(messages=script),
        tools=[bench.interrupts.ask_user_tool()],
        checkpointer=bench.interrupts.checkpointer(bench.saver),
    )
    return graph, bench.interrupts.resume_adapter(graph)


def start() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "help me"}]}


def answer(event: AskUserQuestionEvent, *selections: str, other: str | None = None) -> dict[str, Any]:
    (question,) = event.request.questions
    return {"answers": [{"question_id": question.id, "selections": list(selections), "other": other}]}


async def test_the_answer_comes_back_as_json_under_the_call_that_asked(bench: Bench) -> None:
    graph, adapter = agent(
        bench, AIMessage(content="", tool_calls=[call("c1", questions=[PLAN])]), AIMessage(content="done")
    )
    (event,) = pauses(await bench.collect(graph, "stream", start(), thread(), stream_mode="custom"))
    assert isinstance(event, AskUserQuestionEvent)
    assert event.tool_call_id == "c1"
    assert event.request.questions[0].id is not None

    result = await bench.call(adapter, "invoke", event.pause_token, answer(event, "large"))

    (told,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert (told.tool_call_id, told.status) == ("c1", "success")
    assert json.loads(told.content) == {"answers": [{"question": "Which plan?", "selections": ["large"]}]}
    assert result["messages"][-1].content == "done"


async def test_several_calls_in_one_message_each_get_their_own_answer(bench: Bench) -> None:
    calls = [call("c1", questions=[PLAN]), call("c2", questions=[COLOR])]
    graph, adapter = agent(bench, AIMessage(content="", tool_calls=calls), AIMessage(content="done"))
    await bench.call(graph, "invoke", start(), thread())
    asked = {event.tool_call_id: event for event in await bench.call(adapter, "pending")}
    assert set(asked) == {"c1", "c2"}

    await bench.call(adapter, "answer", asked["c2"].pause_token, answer(asked["c2"], other="green"))
    await bench.call(adapter, "answer", asked["c1"].pause_token, answer(asked["c1"], "small"))
    delivery = await bench.call(adapter, "deliver", "t1")

    told = {m.tool_call_id: json.loads(m.content) for m in delivery.output["messages"] if isinstance(m, ToolMessage)}
    assert told == {
        "c1": {"answers": [{"question": "Which plan?", "selections": ["small"]}]},
        "c2": {"answers": [{"question": "Which colour?", "selections": [], "other": "green"}]},
    }


MALFORMED: dict[str, dict[str, Any]] = {
    "no questions": {"questions": []},
    "five questions": {"questions": [PLAN] * 5},
    "one option": {"questions": [{**PLAN, "options": [{"label": "only"}]}]},
    "a label twice": {"questions": [{**PLAN, "options": [{"label": "same"}, {"label": "same"}]}]},
    "a text too short": {"questions": [{**PLAN, "question": "?"}]},
    "nothing": {},
}


@pytest.mark.parametrize("how", MALFORMED)
async def test_a_malformed_call_comes_back_to_the_model_and_asks_nobody(bench: Bench, how: str) -> None:
    graph, adapter = agent(
        bench, AIMessage(content="", tool_calls=[call("c1", **MALFORMED[how])]), AIMessage(content="I see")
    )

    result = await bench.call(graph, "invoke", start(), thread())

    (told,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert told.status == "error"
    assert "Nobody was asked" in told.content
    assert result["messages"][-1].content == "I see"
    assert await bench.call(adapter, "pending") == []


async def test_an_id_that_the_model_makes_up_is_not_taken(bench: Bench) -> None:
    made_up = {**PLAN, "id": "q-aaaaaaaaaaaa"}
    graph, _ = agent(
        bench, AIMessage(content="", tool_calls=[call("c1", questions=[made_up])]), AIMessage(content="ok")
    )

    (event,) = pauses(await bench.collect(graph, "stream", start(), thread(), stream_mode="custom"))

    assert isinstance(event, AskUserQuestionEvent)
    assert event.request.questions[0].id != "q-aaaaaaaaaaaa"
