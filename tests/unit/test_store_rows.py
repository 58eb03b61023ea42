"""The typed rows are the tables' columns, and each statement of the store is described."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.store import rows, schema
from symfonic_interrupts.store.statements import statements
from symfonic_interrupts.store.statements.parts import MOVED


def columns(row: Any) -> set[str]:
    return {*row.__required_keys__, *row.__optional_keys__}


@pytest.mark.parametrize(
    ("row", "table"),
    [(rows.PauseRow, schema.pauses), (rows.EventRow, schema.events), (rows.FailedLease, schema.leases)],
)
def test_a_row_has_the_columns_of_its_table(row: Any, table: sa.Table) -> None:
    assert columns(row) == set(table.columns.keys())


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_pause_with_its_answer_has_the_columns_of_the_statements_that_read_it(dialect: str) -> None:
    reading = statements(dialect).reading

    for statement in (reading.load_pause, reading.load_thread, reading.find_by_id):
        assert set(statement.selected_columns.keys()) == columns(rows.PauseWithAnswer)


def test_a_moved_pause_has_the_columns_that_a_move_returns() -> None:
    assert {column.name for column in MOVED} == columns(rows.MovedPause)


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
@pytest.mark.parametrize("group", ["opening", "claiming", "settling", "leasing", "reading", "recording", "upkeep"])
def test_each_statement_is_described_where_it_is_built(group: str, dialect: str) -> None:
    built = getattr(statements(dialect), group)

    described = re.findall(r"^ {4,8}([a-z_, ]+): ", type(built).__doc__.partition("Attributes:")[2], re.MULTILINE)

    assert sorted(name for names in described for name in names.strip().split(", ")) == sorted(vars(built))
