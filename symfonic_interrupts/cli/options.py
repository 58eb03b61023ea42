"""The options that several commands have, their environment variables, and the parsing of their values.

No option takes a secret, because every user of a machine can read the arguments of a process. Keys come from a variable or a
file, the password of a store from a variable.
"""

from __future__ import annotations

import getpass
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from symfonic_interrupts.cli.exits import Usage
from symfonic_interrupts.scope import FrameworkTenantScope

KEYS, RETIRED_KEYS = "SYMFONIC_INTERRUPTS_KEYS", "SYMFONIC_INTERRUPTS_RETIRED_KEYS"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])", re.ASCII)


def duration(text: str) -> timedelta:
    """Parse `30d`, `12h`, `5m`, `1.5s` or `2w`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter("a number and a unit: s, m, h, d or w, such as 30d")
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        raise typer.BadParameter("longer than can be counted") from None


def interval(text: str) -> timedelta:
    """Parse a duration above zero."""
    parsed = duration(text)
    if not parsed:
        raise typer.BadParameter("longer than 0s")
    return parsed


Graph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        envvar="SYMFONIC_INTERRUPTS_GRAPH",
        metavar="MODULE:ATTRIBUTE",
        help="A ResumeAdapter, or a function without arguments that returns one or a context manager around one."
        " An async function makes the command use the async calls. Imported from where Python finds modules; see --app-dir.",
    ),
]
AppDir = Annotated[
    Path | None,
    typer.Option(
        "--app-dir",
        envvar="SYMFONIC_INTERRUPTS_APP_DIR",
        metavar="FOLDER",
        help="Import --graph from this folder first, such as `.`. Whoever may write there can run code as you.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="SYMFONIC_INTERRUPTS_STORE",
        metavar="URL",
        help="The pause store: an SQLAlchemy URL, or the path of an SQLite file. With a password use the variable.",
    ),
]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        metavar="FILE",
        help=f"One base64url key a line, newest first, mode 0600. Else the variable {KEYS}, comma-separated.",
    ),
]
RetiredKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--retired-keys-file", metavar="FILE", help=f"Retired keys, likewise. Else the variable {RETIRED_KEYS}."
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", envvar="SYMFONIC_INTERRUPTS_TENANT", metavar="ID", help="Whose pauses. Else the default scope."
    ),
]
SubTenant = Annotated[
    str | None,
    typer.Option("--sub-tenant", envvar="SYMFONIC_INTERRUPTS_SUB_TENANT", metavar="ID", help="The part of the tenant."),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", envvar="SYMFONIC_INTERRUPTS_NAMESPACE", metavar="ID", help="The namespace in the tenant."
    ),
]
SubScopes = Annotated[
    bool, typer.Option("--include-sub-scopes", help="Also of scopes below, where the point may be answered from here.")
]
Actor = Annotated[
    str | None,
    typer.Option(
        "--actor",
        envvar="SYMFONIC_INTERRUPTS_ACTOR",
        metavar="NAME",
        help="Who answers; it is recorded. Else your login name.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")]
Token = Annotated[bool, typer.Option("--token", help="With a token. Whoever has it may answer: mind who sees it.")]
OfThread = Annotated[
    str | None,
    typer.Option("--thread", metavar="ID", help="The pause's thread, where two pauses have the same interrupt_id."),
]
InterruptId = Annotated[str, typer.Argument(metavar="INTERRUPT_ID", help="`i-` and 12 hex digits, from `pending`.")]


def scope_of(tenant: str | None, sub_tenant: str | None, namespace: str | None) -> FrameworkTenantScope | None:
    """The scope that the options name, or None for the default one."""
    if tenant is not None:
        return FrameworkTenantScope(tenant, sub_tenant, namespace)
    if sub_tenant is not None or namespace is not None:
        raise Usage("--sub-tenant and --namespace need --tenant")
    return None


def actor_of(actor: str | None) -> str | None:
    """Who acts: the given name, else the login name, else None."""
    if actor is not None:
        return actor
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        return None
