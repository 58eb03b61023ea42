"""Three reviewers look at one contract side by side, answer out of order, and are joined once.

What it shows: a fan-out with `Send` gives each reviewer a pause with a token of its own. Answers come in any order, in part
at once and in part collected: the first moves the graph on by itself, the other two are only recorded and then delivered
together. A reviewer's body runs once, after the reviewer's answer; the join runs once, when all have answered.

What it needs: nothing but the library, and langgraph-checkpoint-sqlite for the checkpoints.

How to run: `python examples/reviewers_fan_out.py`. It works in a temporary directory and removes it.

What it prints: who is asked, who is still waited for after each answer, the verdict. Never a token.
"""

import operator
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from symfonic_interrupts import Interrupts

REVIEWERS = ("finance", "legal", "security")


class Review(BaseModel):  # what a reviewer is shown
    reviewer: str
    contract: str


class Opinion(BaseModel):  # what a reviewer may answer
    accept: bool
    remark: str = ""


class State(TypedDict, total=False):
    contract: str
    opinions: Annotated[list[str], operator.add]
    verdict: str


class OneReview(TypedDict):
    contract: str
    reviewer: str


def build(interrupts: Interrupts) -> StateGraph[State]:
    @interrupts.interrupt_point(
        "contract_review",
        payload_schema=Review,
        response_schema=Opinion,
        payload=lambda state: Review(reviewer=state["reviewer"], contract=state["contract"]),
    )
    def review(state: OneReview, opinion: Opinion) -> State:
        print(f"   [review] {state['reviewer']} is heard\n", end="")  # one write: two may be heard at the same moment
        said = "accepts" if opinion.accept else "objects"
        return {"opinions": [f"{state['reviewer']} {said}{': ' + opinion.remark if opinion.remark else ''}"]}

    def join(state: State) -> State:
        print("   [join]")
        objections = [opinion for opinion in state["opinions"] if " objects" in opinion]
        return {"verdict": "back to the author" if objections else "signed"}

    def fan_out(state: State) -> list[Send]:
        return [Send("review", {"contract": state["contract"], "reviewer": who}) for who in REVIEWERS]

    builder = StateGraph(State)
    builder.add_node("review", review, input_schema=OneReview)
    builder.add_node("join", join)
    builder.add_conditional_edges(START, fan_out, ["review"])
    return builder.add_edge("review", "join")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Interrupts.local(Path(folder) / "interrupts.db") as interrupts,
        SqliteSaver.from_conn_string(str(Path(folder) / "checkpoints.db")) as saver,
    ):
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver))
        adapter = interrupts.resume_adapter(graph)

        def waiting() -> dict[str, Any]:
            return {event.payload["reviewer"]: event for event in adapter.pending(thread_id="contract-7")}

        print("1. One contract, three reviewers.")
        graph.invoke({"contract": "No. 7"}, {"configurable": {"thread_id": "contract-7"}})
        asked = waiting()
        print("   waiting for", ", ".join(sorted(asked)))

        print("2. Security answers first; the graph moves on as far as it can.")
        adapter.invoke(asked["security"].pause_token, Opinion(accept=True), actor="sam")
        print("   waiting for", ", ".join(sorted(waiting())))

        print("3. Legal and finance are recorded, as a form or a webhook would; nothing runs yet.")
        remark = "clause 4 is missing"
        adapter.answer(asked["legal"].pause_token, Opinion(accept=False, remark=remark), actor="lee")
        adapter.answer(asked["finance"].pause_token, Opinion(accept=True), actor="fay")
        print("   waiting for", ", ".join(sorted(waiting())) or "nobody")

        print("4. One delivery for both.")
        delivery = adapter.deliver("contract-7")
        for opinion in sorted(delivery.output["opinions"]):
            print("  ", opinion)
        print("   verdict:", delivery.output["verdict"])


if __name__ == "__main__":
    main()
