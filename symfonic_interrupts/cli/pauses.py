"""`pending`, `show` and `answer`: what waits for a person, and a person's answer.

A token is shown only where it was asked for. `answer` mints one and keeps it in this process; it never goes around the adapter.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.choices import answer_choices
from symfonic_interrupts.cli.ends import Undone, Usage, ending
from symfonic_interrupts.cli.forms import Form
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
from symfonic_interrupts.cli.reports import delivery_data, failure
from symfonic_interrupts.cli.schemas import read_json
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


@ending
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
        found = calls(
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
        kept = set() if tokens else {"pause_token"}
        output.document([event.model_dump(mode="json", exclude=kept) for event in found])
        return
    rows = []
    for event in found:
        expires = f"{event.expires_at:%Y-%m-%d %H:%M:%S}"
        row = [event.interrupt_id, event.name, event.thread_id, expires, output.compact(event.payload)]
        if tokens:  # too long for a table
            output.cells([*row, event.pause_token])
        rows.append(row)
    if not tokens:
        output.rows(["interrupt_id", "name", "thread", "expires (UTC)", "payload"], rows)
    if not found:
        output.say("nothing waits")


@ending
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
        minted = _mint(calls, interrupt_id, scope, view.thread_id) if token else None
    shown = view.model_dump(mode="json") | ({} if minted is None else {"pause_token": minted})
    if as_json:
        output.document(shown)
    else:
        output.fields(_fields(view) + ([] if minted is None else [("pause_token", minted)]))
    if token and minted is None:
        raise Undone(f"there is no token: this pause is {view.state}")


@ending
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
    response = _given(given)
    if given is None and not output.can_ask():
        raise Usage("there is no terminal to ask at; pass the answer with --json")
    with opened(graph, app_dir) as calls:
        view = calls(calls.adapter, "view", interrupt_id, scope=scope, thread_id=thread)
        _refuse(view)
        minted = _mint(calls, interrupt_id, scope, view.thread_id)
        if minted is None:
            raise StoreError(
                "no token can be made for this pause: it belongs to another scope, its row was changed, or its key is gone"
            )
        who = actor_of(actor)
        if given is None:
            receipt = _asked(calls, view, minted, scope, who)
        else:
            receipt = calls(calls.adapter, "answer", minted, response, scope=scope, actor=who)
        delivered = _delivered(calls, receipt.thread_id) if deliver else None
    if given is not None:
        output.document(receipt.model_dump(mode="json") | ({} if delivered is None else {"delivery": delivered}))
    else:
        output.line(f"answered {receipt.name} {receipt.interrupt_id} of thread {receipt.thread_id}")
    _judge(receipt.interrupt_id, delivered)


def _asked(calls: Calls, view: PauseView, token: str, scope: FrameworkTenantScope | None, who: str | None) -> Any:
    """The receipt of what a person typed; what the point refuses is told, and asked again."""
    output.say(f"{view.name} of thread {view.thread_id}, to answer until {_until(view)}")
    former: Any = None
    ask_user = view.name == "ask_user"
    if not ask_user:
        output.say(output.json_text(view.payload, indent=2), lines=True)
    form = Form(view.response_schema, output.ask, output.say)
    while True:
        entry = answer_choices(view.payload, output.ask, output.say) if ask_user else form.fill(former)
        output.say("answer: " + output.compact(entry))
        if not form.confirm("send it?", default=True):
            former = entry
            continue
        try:
            return calls(calls.adapter, "answer", token, entry, scope=scope, actor=who)
        except ResponseInvalid as error:
            output.say(f"refused: {error}")
            former = entry


def _given(given: str | None) -> Any:
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


def _mint(calls: Calls, interrupt_id: str, scope: FrameworkTenantScope | None, thread_id: str) -> str | None:
    which = {"interrupt_id": interrupt_id, "thread_id": thread_id, "scope": scope, "include_sub_scopes": True}
    found = calls(calls.adapter, "pending", **which, limit=1)
    return found[0].pause_token if found else None


def _refuse(view: PauseView) -> None:
    if view.state == "expired" or view.defaulted:
        raise TokenExpired("the time to answer is over", expired_at=view.expires_at)
    if view.state == "superseded":
        raise PauseSuperseded("the thread went on without this pause; its question no longer stands")
    if view.state != "pending":
        raise TokenConsumed(f"the pause is {view.state}", state=view.state)


def _delivered(calls: Calls, thread_id: str) -> dict[str, Any]:
    """How the delivery went. The answer is stored by now, so no error may look as if it were not."""
    with output.progress(f"running thread {output.printable(thread_id)}"):
        try:
            return delivery_data(calls(calls.adapter, "deliver", thread_id))
        except Exception as error:
            return {"thread_id": thread_id, "applied": [], "unused": [], "open": [], "error": failure(error)}


def _judge(interrupt_id: str, delivered: dict[str, Any] | None) -> None:
    if delivered is None:
        output.say("it is stored; a worker, `recover` or `deliver` runs the graph with it")
        return
    if delivered["error"] is not None:
        told = delivered["error"]["message"]
        raise Undone(f"the answer is stored, but the graph did not go on: {told}; `deliver` tries it again")
    if interrupt_id in delivered["unused"]:
        raise Undone("the answer is stored, but the graph finished without using it")
    output.say("the graph went on" + ("; it asks: " + ", ".join(delivered["open"]) if delivered["open"] else ""))


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
