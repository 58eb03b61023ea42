"""`pending`, `show` and `answer`: the pauses that wait for a person, and a person's answer.

A token is shown only if `--token` or `--tokens` is passed. `answer` takes a new token from the adapter, answers with it through
the adapter, and does not show it.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.ask_user_form import ask_user_answer
from symfonic_interrupts.cli.exits import Undone, Usage, with_exit_code
from symfonic_interrupts.cli.forms import Form
from symfonic_interrupts.cli.json_schema import read_json
from symfonic_interrupts.cli.loading import Calls, opened
from symfonic_interrupts.cli.options import (
    Actor,
    AppDir,
    AsJson,
    Graph,
    InterruptId,
    Namespace,
    OfThread,
    SubScopes,
    SubTenant,
    Tenant,
    Token,
    actor_of,
    scope_of,
)
from symfonic_interrupts.cli.reports import delivery_data, failed_delivery_data
from symfonic_interrupts.errors import (
    PauseSuperseded,
    ResponseInvalid,
    StoreError,
    TokenConsumed,
    TokenExpired,
)
from symfonic_interrupts.scope import FrameworkTenantScope

if TYPE_CHECKING:
    from symfonic_interrupts.core.results import PauseView

Tokens = Annotated[
    bool, typer.Option("--tokens", help="With tokens. Whoever has a token may answer: mind who sees it.")
]


@with_exit_code
def pending(
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    include_sub_scopes: SubScopes = False,
    name: Annotated[str | None, typer.Option("--name", help="Only of this point.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Only of this thread.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Begin after this interrupt_id (the next page).")] = None,
    tokens: Tokens = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for a person, newest first."""
    scope = scope_of(tenant, sub_tenant, namespace)
    with opened(graph, app_dir) as calls:
        events = calls(
            calls.adapter,
            "pending",
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            name=name,
            thread_id=thread,
            limit=limit,
            after=after,
        )
    if as_json:
        hidden = set() if tokens else {"pause_token"}
        output.document([event.model_dump(mode="json", exclude=hidden) for event in events])
        return
    rows = []
    for event in events:
        expires = f"{event.expires_at:%Y-%m-%d %H:%M:%S}"
        row = [event.interrupt_id, event.name, event.thread_id, expires, output.json_text(event.payload)]
        if tokens:  # too long for a table
            output.cells([*row, event.pause_token])
        rows.append(row)
    if not tokens:
        output.rows(["interrupt_id", "name", "thread", "expires (UTC)", "payload"], rows)
    if not events:
        output.say("nothing waits")


@with_exit_code
def show(
    interrupt_id: InterruptId,
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    thread: OfThread = None,
    token: Token = False,
    as_json: AsJson = False,
) -> None:
    """Show a pause: what is asked, and the JSON Schema of the answer."""
    scope = scope_of(tenant, sub_tenant, namespace)
    with opened(graph, app_dir) as calls:
        view = calls(calls.adapter, "view", interrupt_id, scope=scope, thread_id=thread)
        pause_token = _token_of(calls, interrupt_id, scope, view.thread_id) if token else None
    shown = view.model_dump(mode="json") | ({} if pause_token is None else {"pause_token": pause_token})
    if as_json:
        output.document(shown)
    else:
        output.fields(_fields(view) + ([] if pause_token is None else [("pause_token", pause_token)]))
    if token and pause_token is None:
        raise Undone(f"there is no token: this pause is {view.state}")


@with_exit_code
def answer(
    interrupt_id: InterruptId,
    given: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="TEXT|-|@FILE",
            help="The answer as JSON: here, from stdin, or from a file. Prints the receipt as JSON. Else you are asked.",
        ),
    ] = None,
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    thread: OfThread = None,
    actor: Actor = None,
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Also run the graph with it, here. Else a worker or `recover` does.")
    ] = False,
) -> None:
    """Answer a pause: field by field at a terminal, or with --json."""
    scope = scope_of(tenant, sub_tenant, namespace)
    response = _json_answer(given)
    if given is None and not output.can_ask():
        raise Usage("there is no terminal to ask at; pass the answer with --json")
    with opened(graph, app_dir) as calls:
        view = calls(calls.adapter, "view", interrupt_id, scope=scope, thread_id=thread)
        _check_open(view)
        pause_token = _token_of(calls, interrupt_id, scope, view.thread_id)
        if pause_token is None:
            raise StoreError(
                "no token can be made for this pause: it belongs to another scope, its row was changed, or its key is gone"
            )
        who = actor_of(actor)
        if given is None:
            receipt = _ask_until_accepted(calls, view, pause_token, scope, who)
        else:
            receipt = calls(calls.adapter, "answer", pause_token, response, scope=scope, actor=who)
        delivery = _deliver(calls, receipt.thread_id) if deliver else None
    if given is not None:
        output.document(receipt.model_dump(mode="json") | ({} if delivery is None else {"delivery": delivery}))
    else:
        output.line(f"answered {receipt.name} {receipt.interrupt_id} of thread {receipt.thread_id}")
    _report(receipt.interrupt_id, delivery)


def _ask_until_accepted(
    calls: Calls, view: PauseView, token: str, scope: FrameworkTenantScope | None, who: str | None
) -> Any:
    """Ask a person until the adapter accepts the answer. Returns the receipt."""
    output.say(f"{view.name} of thread {view.thread_id}, to answer until {_until(view)}")
    previous: Any = None
    ask_user = view.name == "ask_user"
    if not ask_user:
        output.say(output.json_text(view.payload, indent=2), lines=True)
    form = Form(view.response_schema, output.ask, output.say)
    while True:
        entry = ask_user_answer(view.payload, output.ask, output.say) if ask_user else form.fill(previous)
        output.say("answer: " + output.json_text(entry))
        if not form.confirm("send it?", default=True):
            previous = entry
            continue
        try:
            return calls(calls.adapter, "answer", token, entry, scope=scope, actor=who)
        except ResponseInvalid as error:
            output.say(f"refused: {error}")
            previous = entry


def _json_answer(given: str | None) -> Any:
    if given is None:
        return None
    if given == "-":
        text = sys.stdin.read()
    elif given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--json {given}: {type(error).__name__}; it must be a readable text file") from None
    else:
        text = given
    try:
        return read_json(text)
    except ValueError as error:
        raise Usage(f"--json: {error}") from None


def _token_of(calls: Calls, interrupt_id: str, scope: FrameworkTenantScope | None, thread_id: str) -> str | None:
    """A token for a pending pause, or None if none can be made."""
    pause = {"interrupt_id": interrupt_id, "thread_id": thread_id, "scope": scope, "include_sub_scopes": True}
    events = calls(calls.adapter, "pending", **pause, limit=1)
    return events[0].pause_token if events else None


def _check_open(view: PauseView) -> None:
    """Raise the error that the adapter would raise for the token of a pause that cannot be answered any more."""
    if view.state == "expired" or view.defaulted:
        raise TokenExpired("the time to answer is over", expired_at=view.expires_at)
    if view.state == "superseded":
        raise PauseSuperseded("the thread went on without this pause; its question no longer stands")
    if view.state != "pending":
        raise TokenConsumed(f"the pause is {view.state}", state=view.state)


def _deliver(calls: Calls, thread_id: str) -> dict[str, Any]:
    """Run the graph, and return the delivery. It never raises: an error must not look as if the answer were not stored."""
    with output.progress(f"running thread {output.printable(thread_id)}"):
        try:
            return delivery_data(calls(calls.adapter, "deliver", thread_id))
        except Exception as error:
            return failed_delivery_data(thread_id, error)


def _report(interrupt_id: str, delivery: dict[str, Any] | None) -> None:
    """Say what became of the stored answer.

    Raises:
        Undone: the graph failed, or did not use the answer.
    """
    if delivery is None:
        output.say("it is stored; a worker, `recover` or `deliver` runs the graph with it")
        return
    if delivery["error"] is not None:
        message = delivery["error"]["message"]
        raise Undone(f"the answer is stored, but the graph did not go on: {message}; `deliver` tries it again")
    if interrupt_id in delivery["unused"]:
        raise Undone("the answer is stored, but the graph finished without using it")
    output.say("the graph went on" + ("; it asks: " + ", ".join(delivery["open"]) if delivery["open"] else ""))


def _fields(view: PauseView) -> list[tuple[str, object]]:
    state = f"{view.state}, by its default answer" if view.defaulted else view.state
    return [
        ("interrupt_id", view.interrupt_id),
        ("name", view.name),
        ("thread", view.thread_id),
        ("state", state),
        ("expires", _until(view)),
        ("metadata", view.metadata),
        ("payload", view.payload),
        ("answer_schema", view.response_schema),
    ]


def _until(view: PauseView) -> str:
    left = f", in {timedelta(seconds=int(view.seconds_left))}" if view.seconds_left else ""
    return f"{view.expires_at:%Y-%m-%d %H:%M:%S} UTC{left}"
