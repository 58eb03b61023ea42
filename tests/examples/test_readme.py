"""The README's code runs as it is printed, and its tables agree with the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

import symfonic_interrupts
from symfonic_interrupts import InterruptError, KeyRing
from tests.examples.scripts import EXAMPLES, ROOT, TOKEN

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Scripted(GenericFakeChatModel):
    """Says what the script says, whatever it is asked."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def blocks(language: str, mark: str = "") -> list[tuple[int, str]]:
    """The fenced blocks of a language and mark, each with its first line's number."""
    return [
        (README.count("\n", 0, found.start(3)) + 1, found[3])
        for found in BLOCK.finditer(README)
        if (found[1], found[2]) == (language, mark)
    ]


def run_block(line: int, code: str, namespace: dict[str, Any]) -> None:
    """Run a block; a traceback names the README's line."""
    exec(compile("\n" * (line - 1) + code, str(ROOT / "README.md"), "exec"), namespace)


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A module of its own for the README's code, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMFONIC_INTERRUPTS_KEYS", "set by a block")
    module = type(sys)("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    return vars(module)


@pytest.fixture
def readme(namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Any]]:
    """What the README's blocks defined, after all of them ran in order; `printed` has the lines that they printed."""
    for line, code in blocks("python"):
        run_block(line, code, namespace)
    namespace["printed"] = capsys.readouterr().out.splitlines()
    yield namespace
    namespace["interrupts"].close()


def test_every_block_of_code_is_run_by_a_test() -> None:
    marks = [(found[1], found[2]) for found in BLOCK.finditer(README) if found[1] not in ("text", "sh")]

    assert set(marks) == {
        ("python", ""),
        ("python", "agent"),
        ("python", "postgres"),
        ("python", "fastapi"),
        ("diff", ""),
    }


def test_the_quickstart_is_the_example() -> None:
    assert blocks("python")[0][1] == (EXAMPLES / "quickstart.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("sign", "-+", ids=["with interrupt() alone", "with this library"])
def test_both_sides_of_the_diff_run_and_print_the_same(
    sign: str, namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ((line, diff),) = blocks("diff")
    code = "\n".join(row[1:] for row in diff.splitlines() if row[:1] in ("", " ", sign))

    run_block(line, code, namespace)

    assert capsys.readouterr().out == "paid\n"
    if "interrupts" in namespace:
        namespace["interrupts"].close()


def test_the_quickstart_prints_what_the_readme_says(
    namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run_block(*blocks("python")[0], namespace)

    assert capsys.readouterr().out == blocks("text")[0][1]
    namespace["interrupts"].close()


def test_the_blocks_run_in_their_order(readme: dict[str, Any]) -> None:
    printed = readme["printed"]

    assert printed[2] == "Post"
    assert printed[3].startswith("paid ('i-")
    assert printed[4] == "['paid', 'paid'] []"
    assert printed[5] == "(403, {'code': 'scope_mismatch'})"
    assert printed[6].startswith("(422, {'code': 'response_invalid', 'message': ")
    assert printed[7] == "200"
    assert printed[8] == "paid"
    assert printed[9].startswith("refund_approval {'amount': 60, 'order': 'A-20'} ")
    assert printed[10:] == ["[{'approved': True}]", "['interrupt_resolved']", "403 scope_mismatch", "paid", "paid"]
    assert not any(TOKEN.search(line) for line in printed)


@pytest.mark.parametrize("change", [0, 400], ids=["as approved", "edited afterwards"])
def test_the_later_node_requires_exactly_what_was_approved(readme: dict[str, Any], change: int) -> None:
    builder = readme["StateGraph"](readme["Wire"])
    builder.add_node("ask", readme["ask"]).add_node("send", readme["send_money"])
    builder.add_edge(readme["START"], "ask").add_edge("ask", "send")
    saver = readme["interrupts"].checkpointer(readme["InMemorySaver"](), graph="wire")
    graph = builder.compile(checkpointer=saver)
    adapter = readme["interrupts"].resume_adapter(graph)
    config = {"configurable": {"thread_id": "wire"}}
    graph.invoke({"order": "A", "amount": 40}, config)
    adapter.invoke(adapter.pending()[0].pause_token, {"approved": True}, interrupt_before=["send"])

    graph.update_state(config, {"amount": 40 + change})

    if change:
        with pytest.raises(symfonic_interrupts.ReceiptInvalid):
            graph.invoke(None, config)
    else:
        assert graph.invoke(None, config)["result"] == "sent"


@pytest.mark.parametrize(
    ("node", "response", "result"),
    [
        ("pay", lambda event: {"approved": True}, "paid"),
        (
            "choose",
            lambda event: {"answers": [{"question_id": event.request.questions[0].id, "other": "Pigeon"}]},
            "Pigeon",
        ),
    ],
    ids=["a point held in a variable", "ask_user, in other words"],
)
def test_the_nodes_that_the_readme_only_defines_pause_too(
    readme: dict[str, Any], node: str, response: Any, result: str
) -> None:
    builder = readme["StateGraph"](readme["State"]).add_node(node, readme[node]).add_edge(readme["START"], node)
    graph = builder.compile(checkpointer=readme["interrupts"].checkpointer(readme["InMemorySaver"](), graph=node))
    adapter = readme["interrupts"].resume_adapter(graph)
    graph.invoke({"order": "A", "amount": 40}, {"configurable": {"thread_id": node}})
    (event,) = adapter.pending(thread_id=node)

    assert adapter.invoke(event.pause_token, response(event))["result"] == result


def test_the_block_for_agents_asks_and_the_answer_comes_back_under_the_call(readme: dict[str, Any]) -> None:
    question = {"question": "Which carrier?", "options": [{"label": "Post"}, {"label": "Courier"}]}
    call = {"name": "ask_user", "args": {"questions": [question]}, "id": "c1", "type": "tool_call"}
    readme["model"] = Scripted(messages=iter([AIMessage(content="", tool_calls=[call]), AIMessage(content="sent")]))
    run_block(*blocks("python", "agent")[0], readme)
    event = readme["event"]
    answer = {"question_id": event.request.questions[0].id, "selections": ["Post"]}

    result = readme["agent_adapter"].invoke(event.pause_token, {"answers": [answer]})

    told = [message.content for message in result["messages"] if message.type == "tool"]
    assert event.tool_call_id == "c1"
    assert told == ['{"answers": [{"question": "Which carrier?", "selections": ["Post"]}]}']


def test_the_block_for_the_middleware_asks_before_the_tool_runs_and_runs_it_once(readme: dict[str, Any]) -> None:
    sent: list[str] = []

    def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    call = {"name": "send_mail", "args": {"to": "Ann"}, "id": "c1", "type": "tool_call"}
    script = iter([AIMessage(content="", tool_calls=[call]), AIMessage(content="done")])
    readme.update(model=Scripted(messages=script), send_mail=send_mail)
    line, code = blocks("python", "agent")[1]
    before, after = code.split("office.invoke(event.pause_token")

    run_block(line, before, readme)
    assert readme["event"].payload["action_requests"][0]["args"] == {"to": "Ann"}
    assert sent == []
    run_block(line, "office.invoke(event.pause_token" + after, readme)

    assert sent == ["Ann"]


def test_the_block_for_fastapi_is_a_service_that_knows_its_callers(readme: dict[str, Any]) -> None:
    ((line, code),) = blocks("python", "fastapi")
    run_block(line, code, readme)
    scope = symfonic_interrupts.FrameworkTenantScope("local")
    readme["SESSIONS"] = {"s-1": readme["Identity"](scope, actor="kim")}
    with TestClient(readme["app"]) as client:
        page = client.get("/questions/pending", headers={"x-session": "s-1"})
        stranger = client.get("/questions/pending", headers={"x-session": "nobody"})

    assert page.status_code == 200
    assert {item["thread_id"] for item in page.json()["items"]} == {
        event.thread_id for event in readme["adapter"].pending()
    }
    assert stranger.status_code == 401


def test_the_tokens_of_the_block_for_operators_are_dead(readme: dict[str, Any]) -> None:
    for token, state in ((readme["old"].pause_token, "reissued"), (readme["renewed"].pause_token, "revoked")):
        with pytest.raises(symfonic_interrupts.TokenConsumed) as refused:
            readme["adapter"].answer(token, {"approved": True})
        assert refused.value.state == state


def test_the_loop_of_the_block_for_workers_has_ended(readme: dict[str, Any]) -> None:
    assert not readme["background"].is_alive()
    assert set(readme["in_use"]) >= set(readme["ring"].kids)


@pytest.mark.postgres
def test_the_block_for_postgresql_runs(
    namespace: dict[str, Any],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refund_approval: dict[str, Any] = {"__name__": "refund_approval"}
    exec((EXAMPLES / "refund_approval.py").read_text(encoding="utf-8"), refund_approval)
    monkeypatch.setenv("INTERRUPTS_URL", postgres_url)
    monkeypatch.setenv("CHECKPOINTS_URL", postgres_url.replace("postgresql+psycopg://", "postgresql://", 1))
    monkeypatch.setenv("SYMFONIC_INTERRUPTS_KEYS", KeyRing.new_key())
    namespace["build"] = refund_approval["build"]
    ((line, code),) = blocks("python", "postgres")
    seen = "\n    done = graph.get_state({'configurable': {'thread_id': 'order-1'}}).values\n"

    run_block(line, code + seen, namespace)

    assert namespace["done"]["result"] == "paid, approved"
    namespace["interrupts"].close()


def test_the_table_of_errors_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d{3}) \|", README, re.MULTILINE)
    errors = [value for value in vars(symfonic_interrupts).values() if isinstance(value, type)]
    expected = {
        (error.__name__, error.code, str(error.http_status))
        for error in errors
        if issubclass(error, InterruptError) and error is not InterruptError
    }

    assert set(rows) == expected
    assert len(rows) == len(expected)


def test_the_page_of_guarantees_names_only_tests_that_exist() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", page))

    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []


def test_the_readme_names_only_files_and_targets_that_exist() -> None:
    for path in re.findall(r"`(examples/[\w/.]+)`", README):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`", README):
        assert f"\n{target}:" in makefile, target
