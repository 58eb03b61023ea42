"""What all rooms share: settings, keys, registry, store, and the memory of running executions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from symfonic_interrupts import forks
from symfonic_interrupts.clock import Clock
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.core.alarm import Alarm
from symfonic_interrupts.core.executions import Executions
from symfonic_interrupts.core.failpoints import Reached, nothing
from symfonic_interrupts.errors import ScopeRequired
from symfonic_interrupts.events import ExpiryEvent
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.registry import Registry
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from symfonic_interrupts.store.threads import Threads
from symfonic_interrupts.tokens.keys import KeyRing

audit_log = logging.getLogger("symfonic_interrupts.audit")

SCOPE: str = "__symfonic_scope"
"""Key of `configurable` under which a delivery hands on the scope of the pause. LangGraph does not store such keys."""

DELIVERY_RUN: str = "__symfonic_delivery_run"
"""Key of `configurable`: the delivery that runs the graph (`core.delivery_run`)."""

MOST_REPORTED = 10_000
"""So many reports are remembered, so that each is made once."""

TENANT_KEYS = ("tenant_id", "sub_tenant_id", "namespace")

Subscriber = Callable[[ExpiryEvent], None]


@dataclass(slots=True)
class Hub:
    """One hub: everything that an `Interrupts` was given, and what its parts remember in this process."""

    config: FrameworkConfig
    keys: KeyRing
    clock: Clock
    registry: Registry
    database: Database
    operations: Operations
    executions: Executions = field(default_factory=Executions)
    subscribers: list[Subscriber] = field(default_factory=list)
    cached_nodes: dict[str, frozenset[str]] = field(default_factory=dict)
    graph_nodes: dict[str, frozenset[str]] = field(default_factory=dict)
    node_objects: dict[str, dict[str, list[object]]] = field(default_factory=dict)  # see `graph_checks.node_objects`
    lock: forks.Lock = field(default_factory=forks.Lock)
    failpoint: Reached = nothing
    reported: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    alarm: Alarm = field(default_factory=Alarm)
    checks: Threads = field(default_factory=lambda: Threads(4, "symfonic-checks"))  # where answers are validated

    def audience(self, graph: str) -> str:
        """The `aud` of a graph's tokens and receipts."""
        return f"{self.config.audience}/{graph}"

    def first_time(self, what: Any) -> bool:
        """Whether this process reports `what` for the first time. It remembers the last `MOST_REPORTED`."""
        with self.lock:
            if what in self.reported:
                return False
            self.reported[what] = None
            while len(self.reported) > MOST_REPORTED:
                self.reported.popitem(last=False)
        return True

    def covered_nodes(
        self, graph: str, objects: Mapping[str, list[object]] | None = None
    ) -> Iterator[tuple[InterruptRegistration, str]]:
        """The nodes of a graph that a registration covers: (registration, `"sub:node"`).

        Args:
            objects: `node_objects` of the graph; None: those that were noted when its adapter was made.
        """
        known = objects if objects is not None else self.node_objects.get(graph)
        for registration in self.registry.values():
            owner = registration.nodes_of
            above = [""]  # where no adapter was made, nobody knows what the graph carries
            if owner is not None and known is not None:
                above = [prefix for prefix, carried in known.items() if any(other is owner for other in carried)]
            for entry in registration.nodes:
                in_graph, _, path = entry.rpartition("/")
                if in_graph in ("", graph):
                    yield from ((registration, prefix + path) for prefix in above)

    def now(self) -> datetime:
        """The process's time (UTC)."""
        return self.clock()

    def scope_of_run(self, config: Mapping[str, Any]) -> FrameworkTenantScope:
        """The scope of a pause made in a run with this LangGraph config.

        Raises:
            ScopeRequired: the config names none, and there is no default.
        """
        configurable = config.get("configurable") or {}
        handed_on = configurable.get(SCOPE)
        if isinstance(handed_on, FrameworkTenantScope):
            return handed_on
        return self.require_scope(self.named_scope(config), 'pass config={"configurable": {"tenant_id": ...}}')

    def named_scope(self, config: Mapping[str, Any]) -> FrameworkTenantScope | None:
        """The scope that a run's config names; None where it names none.

        Raises:
            ScopeRequired: what it names is no scope.
        """
        configurable = config.get("configurable") or {}
        if self.config.scope_resolver is not None:
            scope = self.config.scope_resolver(config)
            if scope is not None and not isinstance(scope, FrameworkTenantScope):
                raise ScopeRequired("FrameworkConfig.scope_resolver must return a FrameworkTenantScope, or None")
            return scope
        if any(configurable.get(key) is not None for key in TENANT_KEYS):
            parts: list[Any] = [configurable.get(key) for key in TENANT_KEYS]
            return FrameworkTenantScope(*parts)
        return None

    def require_scope(self, scope: FrameworkTenantScope | None, remedy: str) -> FrameworkTenantScope:
        """The scope given, or the default one.

        Args:
            remedy: the end of the error message: how to name a scope here.

        Raises:
            ScopeRequired: neither is there.
        """
        scope = scope or self.config.default_scope
        if scope is None:
            raise ScopeRequired(f"scope: no tenant was given and FrameworkConfig.default_scope is not set; {remedy}")
        if not isinstance(scope, FrameworkTenantScope):
            raise ScopeRequired(f"scope must be a FrameworkTenantScope, not {type(scope).__name__}")
        return scope
