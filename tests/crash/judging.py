"""What must hold after every crash, checked from outside: from the journals of the dead, the final states and the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.crash.lives import Case, Journal, Place
from tests.crash.shapes import HAPPENS_ONCE

PAUSES = """
    SELECT p.id, p.thread_id, p.payload, p.state, t.response FROM interrupt_pauses p
    LEFT JOIN interrupt_consumed_tokens t ON t.jti = p.jti AND t.outcome = 'answered' ORDER BY p.id
"""
LEASES = "SELECT count(*) FROM interrupt_thread_leases"


@dataclass
class Counts:
    """What a test has seen. All but the first three must be 0.

    Attributes:
        kills: processes killed.
        threads: that were brought to their end.
        answers: acknowledged ones, to people and by the janitor.
        lost: answers that are not in the final state of their thread.
        doubled: answers or steps that are in it more than once.
        asked_again: questions asked again after their answer was acknowledged.
        stuck: threads that do not end, or stand without an open pause.
        leases: left in the store.
        other: anything else that went wrong.
    """

    kills: int = 0
    threads: int = 0
    answers: int = 0
    lost: int = 0
    doubled: int = 0
    asked_again: int = 0
    stuck: int = 0
    leases: int = 0
    other: int = 0
    details: list[str] = field(default_factory=list)

    def add(self, kind: str, detail: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.details.append(f"{kind}: {detail}")

    def numbers(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "details"}


def judge(place: Place, cases: Iterable[Case], counts: Counts) -> None:
    """Check every thread of these cases, and that no lease is left."""
    reports: dict[str, dict[str, Any]] = json.loads((Path(place.directory) / "reports.json").read_text())
    engine = sa.create_engine(place.store)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.exec_driver_sql(PAUSES).mappings()]
        leases = connection.exec_driver_sql(LEASES).scalar()
    engine.dispose()
    if leases:
        counts.leases += leases
        counts.details.append(f"leases: {leases}")
    for case in cases:
        journal = Journal(Path(place.directory) / case.name)
        for thread_id in case.threads:
            begun = bool(journal.noted("begun", thread_id))
            if begun != (thread_id in reports):
                counts.add("other", f"{thread_id}: begun and not mended, or the reverse")
            elif begun:
                counts.threads += 1
                told = [f"{e['order']}={e['note']}" for e in journal.noted("acknowledged", thread_id)]
                of_thread = [row for row in rows if row["thread_id"] == thread_id]
                judge_thread(f"{thread_id} {case}", case.shape, reports[thread_id], told, of_thread, counts)


def judge_thread(
    where: str, shape: str, report: dict[str, Any], told: list[str], rows: list[dict[str, Any]], counts: Counts
) -> None:
    """Check one thread.

    Args:
        report: of the process that mended it.
        told: the acknowledged answers, as they must stand in the state.
        rows: of its pauses, oldest first, with the response of each answer that the store has accepted.
    """
    log = Counter(report["log"])
    stored = {}
    for row in rows:
        if row["response"] is not None:
            order, note = json.loads(row["payload"])["order"], json.loads(row["response"])["note"]
            stored[row["id"]] = (order, f"{order}={note}")
            if row["state"] != "applied":
                counts.add("other", f"{where}: the answer {order}={note} ended as {row['state']}")
    counts.answers += len(stored)
    for answer in {*told, *(answer for _, answer in stored.values())}:
        if log[answer] == 0:
            counts.add("lost", f"{where}: {answer} not in {report['log']}")
    happened = sorted(entry.split("=")[0] for entry in log.elements())
    if happened != HAPPENS_ONCE[shape]:
        kind = "doubled" if len(happened) > len(set(happened)) else "other"
        counts.add(kind, f"{where}: the final state is {report['log']}")
    for row in rows:
        order = json.loads(row["payload"])["order"]
        if any(order == answered and row["id"] > id_ for id_, (answered, _) in stored.items()):
            counts.add("asked_again", f"{where}: {order}, now {row['state']}")
        if row["state"] in ("pending", "answered"):
            counts.add("other", f"{where}: a pause is left {row['state']}")
    if report["unfinished"]:
        counts.add("stuck", f"{where}: {report['unfinished']}")
    for problem in report["problems"]:
        kind = "asked_again" if problem.startswith("asked again") else "stuck" if "not end" in problem else "other"
        counts.add(kind, f"{where}: {problem}")
