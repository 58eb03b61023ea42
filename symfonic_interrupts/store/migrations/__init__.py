"""Brings a pause store that an older release made to this release's schema, with Alembic, and says where a store stands.

Alembic is only needed by `upgrade`, and only imported there. Its version table is this package's own, so an application's
Alembic in the same database knows nothing of it. Tables are never brought back to an older schema.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.engines import make_engine, read_url, refuse_memory
from symfonic_interrupts.store.failures import StoreErrors
from symfonic_interrupts.store.schema import pauses
from symfonic_interrupts.store.versions import (
    SCHEMA_VERSION,
    check_version,
    is_newer,
    refuse_unreleased,
    version_of,
    wait_for_others,
)

__all__ = ["current", "head", "upgrade"]

_SYNC_DRIVERS = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
}

_alembic_lock = (
    threading.Lock()
)  # Alembic keeps what it works on in its own modules: one upgrade of a process at a time


def head() -> str:
    """The version of this release's schema."""
    return SCHEMA_VERSION


def current(target: str | sa.URL | sa.Engine) -> str | None:
    """The version of a store's schema; None where it has no tables, or none of a release. Changes nothing.

    Args:
        target: an SQLAlchemy URL (an async driver's is read with the sync one), or an `Engine`.

    Raises:
        StoreError: the store cannot be used.
    """
    with _engine(target) as engine, StoreErrors(), engine.connect() as connection:
        return version_of(connection)


def upgrade(target: str | sa.URL | sa.Engine) -> str:
    """Bring a store to this release's schema, in one transaction, and return its version. An empty store gets the tables.

    Idempotent; processes that do it at once take turns. Not to be called within a migration of the application's own.

    Args:
        target: an SQLAlchemy URL (an async driver's is reached with the sync one), or an `Engine`.

    Raises:
        StoreError: the store cannot be used, a newer release made its tables, or Alembic is not installed.
    """
    command, config = _alembic()
    with _engine(target) as engine, StoreErrors(), engine.begin() as connection, _alembic_lock:
        wait_for_others(connection)
        version = version_of(connection)
        if version is not None and is_newer(version):
            check_version(version)
        if version is None and sa.inspect(connection).has_table(pauses.name):
            refuse_unreleased(connection)
            raise StoreError("the pause store has tables and no version: call create_schema() once, then upgrade")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return SCHEMA_VERSION


def _alembic() -> tuple[Any, Any]:
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError:
        raise StoreError("upgrading needs Alembic; pip install 'symfonic-interrupts[migrations]'") from None
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return command, config


@contextmanager
def _engine(target: str | sa.URL | sa.Engine) -> Iterator[sa.Engine]:
    if isinstance(target, sa.Engine):
        refuse_memory(target)
        yield target
        return
    if not isinstance(target, str | sa.URL):
        raise StoreError("migrations take an SQLAlchemy URL or an Engine; for an AsyncEngine give its URL")
    try:
        url = read_url(target)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is not None and url.drivername in _SYNC_DRIVERS:
        target = url.set(drivername=_SYNC_DRIVERS[url.drivername])
    engine, _ = make_engine(target)
    assert engine is not None
    try:
        yield engine
    finally:
        engine.dispose()
