"""The notebook runs from its first cell to its last, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.examples.scripts import EXAMPLES, TOKEN

NOTEBOOK = EXAMPLES / "notebooks" / "first_pause.ipynb"


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


def test_the_notebook_runs_and_refuses_the_second_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))  # no kernel but this interpreter's
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "i-" in shown[2]
    assert "pending" in shown[3]
    assert "response_invalid" in shown[4]
    assert "80 paid" in shown[5]
    assert "token_consumed" in shown[6]
    assert not any(TOKEN.search(text) for text in shown)
