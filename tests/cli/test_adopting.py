"""`adopt`: questions from before the library get pauses; no token is shown."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.cli.conftest import TOKEN, Shop
from tests.cli.waiting import build


@pytest.fixture
def before(shop: Shop) -> Shop:
    """A shop with threads that asked before the library came: two that name a tenant, one that names none, one uncovered."""
    shop.environment["SYMFONIC_INTERRUPTS_GRAPH"] = "tests.cli.waiting:waiting"
    with SqliteSaver.from_conn_string(shop.environment["SHOP_CHECKPOINTS"]) as saver:
        graph = build().compile(checkpointer=saver)
        for thread_id, tenant in (("acme", "acme"), ("globex", "globex"), ("none", None), ("free", "acme")):
            place: dict[str, Any] = {"thread_id": thread_id, **({"tenant_id": tenant} if tenant else {})}
            graph.invoke({"order": thread_id}, {"configurable": place})
    return shop


def test_waiting_questions_are_adopted_in_the_tenant_of_their_threads_and_the_others_are_told_of(before: Shop) -> None:
    done = before.run("adopt", "acme", "none", "free", "nowhere")
    found = before.json("adopt", "--tenant", "acme", "--json")
    again = before.run("adopt", "acme")

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(": ")[0] for line in lines[1:]] == ["left none gate", "left free free", "left nowhere"]
    assert lines[0].startswith("adopted i-")
    assert lines[0].endswith(" of acme")
    assert [one["thread_id"] for one in found["adopted"]] == ["none"]
    assert {(one["thread_id"], one["code"]) for one in found["left"]} == {
        ("globex", "scope_mismatch"),
        ("free", "uncovered"),
    }
    assert (again.stdout, again.stderr) == ("", "no question waits without a pause\n")
    assert not TOKEN.search(done.stdout + str(found))


def test_an_adopted_question_is_answered_as_any_other(before: Shop) -> None:
    (one,) = before.json("adopt", "acme", "--json")["adopted"]

    before.json("answer", one["interrupt_id"], "--tenant", "acme", "--json", '{"approved": true}')
    before.json("deliver", "acme", "--json")

    assert before.rows("SELECT state FROM interrupt_pauses") == [("applied",)]
