"""The SQL of the store, built once per dialect with SQLAlchemy Core.

Whatever decides between two callers is one statement with RETURNING. `now` is the database's clock on PostgreSQL, and a
bound parameter on SQLite, which has no clock that the tests could set.
"""

from __future__ import annotations

from functools import cache

from symfonic_interrupts.store.statements.claiming import Claiming
from symfonic_interrupts.store.statements.leasing import Leasing
from symfonic_interrupts.store.statements.opening import Opening
from symfonic_interrupts.store.statements.parts import Dialect
from symfonic_interrupts.store.statements.reading import Reading
from symfonic_interrupts.store.statements.recording import Recording
from symfonic_interrupts.store.statements.settling import Settling
from symfonic_interrupts.store.statements.upkeep import Upkeep


class Statements:
    """All statements for one dialect, in the groups in which `Operations` uses them.

    Attributes:
        is_postgres: PostgreSQL, else SQLite.
        opening: questions.
        claiming: tokens that are spent, and the states that follow.
        settling: what becomes of answers that were given.
        leasing: the holds on threads, and the failures noted there.
        reading: pauses, events and failed threads.
        recording: event rows, and refusals that are counted.
        upkeep: recovery, keys, and what is purged.
    """

    def __init__(self, name: str) -> None:
        dialect = Dialect(name)
        self.is_postgres = dialect.is_postgres
        self.opening = Opening(dialect)
        self.claiming = Claiming(dialect)
        self.settling = Settling(dialect)
        self.leasing = Leasing(dialect)
        self.reading = Reading(dialect)
        self.recording = Recording(dialect)
        self.upkeep = Upkeep(dialect)


@cache
def statements(dialect: str) -> Statements:
    """The statements for `sqlite` or `postgresql`."""
    return Statements(dialect)
