"""The built-in point: questions with options, its own three events, no flag needed."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    AskUserAnsweredEvent,
    AskUserExpiredEvent,
    AskUserOption,
    AskUserQuestion,
    AskUserQuestionEvent,
    AskUserRequest,
    FrameworkConfig,
    ResponseInvalid,
)
from tests.harness import ACME, Bench, answers, open_bench, pauses, thread


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


REQUEST = AskUserRequest(
    questions=(
        AskUserQuestion(
            question="Which plan?",
            options=(AskUserOption(label="small"), AskUserOption(label="large")),
            allow_other=True,
        ),
    ),
    tool_call_id="call-1",
)


def asking(bench: Bench) -> Any:
    def node(state: State) -> dict[str, Any]:
        response = bench.interrupts.ask_user.pause(REQUEST)
        return {"log": response.selected_labels}

    return bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))


async def test_a_question_is_asked_and_answered_with_its_own_events_and_without_the_flag(
    mode: str, store_url: str, tmp_path: Any
) -> None:
    async with open_bench(mode, store_url, tmp_path, FrameworkConfig(default_scope=ACME)) as bench:
        graph, adapter = asking(bench)
        (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="custom"))
        assert isinstance(event, AskUserQuestionEvent)
        assert (event.request, event.tool_call_id, event.name) == (REQUEST, "call-1", "ask_user")
        assert event.pause_token not in repr(event)
        question = event.request.questions[0].id
        assert question is not None

        wrong = {"answers": [{"question_id": question, "selections": ["huge"]}]}
        with pytest.raises(ResponseInvalid, match="offered"):
            await bench.call(adapter, "answer", event.pause_token, wrong)
        answer = {"answers": [{"question_id": question, "selections": ["large"], "other": "soon"}]}
        chunks = await bench.collect(adapter, "stream", event.pause_token, answer, stream_mode="custom")

        (told,) = answers(chunks)
        assert isinstance(told, AskUserAnsweredEvent)
        assert (told.selected_labels, told.has_other, told.tool_call_id) == (["large"], True, "call-1")
        assert "soon" not in repr(told)
        assert (await bench.call(graph, "get_state", thread())).values == {"log": ["large"]}


async def test_an_unanswered_question_expires_with_its_own_event(bench: Bench) -> None:
    graph, adapter = asking(bench)
    bench.clock.move(-timedelta(hours=30))
    await bench.call(graph, "invoke", {"log": []}, thread())
    bench.clock.move(timedelta(hours=30))

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    (event,) = report.events
    assert isinstance(event, AskUserExpiredEvent)
    assert event.scope_hash == ACME.scope_hash


async def test_the_json_schema_that_clients_see_is_that_of_the_answer(bench: Bench) -> None:
    graph, _ = asking(bench)
    result = await bench.call(graph, "invoke", {"log": []}, thread())
    (interrupt,) = result["__interrupt__"]

    assert interrupt.response_schema["properties"]["answers"]["type"] == "array"
    assert set(interrupt.response_schema["$defs"]) >= {"AskUserAnswer"}
