"""The notebook of parallel approvals runs from its first cell to its last, once and with every cell run twice."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.examples.scripts import EXAMPLES, TOKEN

NOTEBOOK = EXAMPLES / "notebooks" / "parallel_approvals.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def output_of(cell: Any) -> str:
    """What a cell printed, and its value. What is printed may come in any number of parts."""
    return "".join(part.get("text") or part["data"]["text/plain"] for part in cell.outputs)


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = read()

    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("times", [1, 2], ids=["once", "each cell twice"])
def test_the_notebook_asks_three_people_at_once_and_joins_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))  # no kernel but this interpreter's
    notebook = read()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [copy.deepcopy(cell) for cell in code for _ in range(times)]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"run-{number}"

    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = [output_of(cell) for cell in notebook.cells]
    for turn in range(times):
        told = shown[turn::times]
        assert told[2] == "['budget', 'legal', 'purchasing']"
        assert told[3] == "['budget', 'legal']"
        assert told[4] == "response_invalid\ntoken_invalid\n"
        decisions, result = ast.literal_eval(told[5])
        assert sorted(decisions) == ["budget: yes", "legal: yes clause 4 added", "purchasing: yes"]
        assert result == "ordered"
        assert told[6] == "True\ntoken_consumed\n"
    assert not any(TOKEN.search(text) for text in shown)
