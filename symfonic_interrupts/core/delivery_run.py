"""What a delivery and the saver of its graph share, through the run's config.

The delivery says which answers it sends; the saver says which of them were used, and how far the run has come.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass, field
from typing import Any

from symfonic_interrupts.core.hub import DELIVERY_RUN
from symfonic_interrupts.core.lease import LeaseKeeper
from symfonic_interrupts.store.rows import PauseWithAnswer


@dataclass(slots=True, eq=False)
class DeliveryRun:
    """One delivery's runs of its graph.

    Attributes:
        lease: the delivery's hold on the thread.
        side_by_side: paths of nodes whose calls run beside each other, so that a pass may end before each has asked.
        rows: the thread's pauses as the delivery read them last, before it ran the graph.
        brought: jtis of all answers that the graph was resumed with.
        expected: by task id, jtis of the answers that the task has already or is sent.
        natives: by (task id, slot), the values that were sent to native nodes.
        envelopes: the resume values that were sent to points.
        unannounced: jtis of the answers that were sent and are not yet announced as used.
        used: jtis of answers that nodes used.
        writing: by jti, a future of the write that says that the answer was used: True once it is stored, False if that failed.
        reached: the id of the newest root checkpoint that the run has stored; None where it has stored none.
    """

    lease: LeaseKeeper
    side_by_side: frozenset[str] = frozenset()
    rows: list[PauseWithAnswer] = field(default_factory=list)
    brought: set[str] = field(default_factory=set)
    expected: dict[str, set[str]] = field(default_factory=dict)
    natives: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False)
    envelopes: list[Any] = field(default_factory=list, repr=False)
    unannounced: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    writing: dict[str, concurrent.futures.Future[bool]] = field(default_factory=dict)
    reached: str | None = None

    def has_sent(self, task_id: str, slot: int, value: Any) -> bool:
        """Whether the delivery has resumed the task with this value in this slot."""
        if any(value is envelope for envelope in self.envelopes):
            return True
        return (task_id, slot) in self.natives and bool(self.natives[task_id, slot] == value)

    @property
    def native_slots(self) -> dict[str, int]:
        """By task, the slot of the native answer that it is sent."""
        return dict(self.natives.keys())


def delivery_run_of(config: Any, graph: str) -> DeliveryRun | None:
    """The delivery that runs the graph with this config; None where somebody else runs it.

    The entry in the config counts only for the graph and thread of the delivery's lease: a node may hand its own config on to
    another graph, or run one in another thread.
    """
    configurable = config["configurable"]
    run = configurable.get(DELIVERY_RUN)
    if not isinstance(run, DeliveryRun):
        return None
    lease = run.lease.lease
    return run if (lease.graph, lease.thread_id) == (graph, str(configurable["thread_id"])) else None
