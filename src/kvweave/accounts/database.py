"""The database of keys and usage: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kvweave.accounts.errors import AccountsError

URL_VARIABLE = "KVWEAVE_DATABASE_URL"
"""Takes the place of `accounts.database_url`; the place for a URL with a password."""

HEAD = "0001"
"""Name of the newest step in `migrations/versions`."""

_MIGRATIONS = Path(__file__).with_name("migrations")
_LOCK_WAIT_S = 30
_UPGRADE_LOCK = 0x6B7677  # of PostgreSQL's advisory locks


class Database:
    """Connections to one database, whose tables are there and up to date. Thread-safe."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engine = _make_engine(url)
        with self._explained():
            if not self._is_current():
                self._upgrade()

    @classmethod
    def open(cls, configured: str) -> Database:
        """The database that the environment or else the configuration names.

        Args:
            configured: a SQLAlchemy URL, or a file's path for SQLite.

        Raises:
            AccountsError: it cannot be reached or used; the message says what to do.
        """
        return cls(parse_url(os.environ.get(URL_VARIABLE, "").strip() or configured))

    @property
    def shown(self) -> str:
        """What to call it in messages: the file, or the URL without its password."""
        if self._url.get_backend_name() == "sqlite":
            return self._url.database or "memory"
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection to look something up with."""
        with self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: committed at the end of the block, undone by an exception.

        On SQLite it is the only one that writes from its first statement on, so what it has read
        stays true.
        """
        with self._explained(), self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.execution_options(kvweave_writes=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except (DBAPIError, PoolTimeout) as error:
            raise AccountsError(_why_not(error, self.shown)) from error

    def _is_current(self) -> bool:
        with self._engine.connect() as connection:
            return _version(connection) == HEAD

    def _upgrade(self) -> None:
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with self.write() as connection:  # no other process upgrades meanwhile
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
            version = _version(connection)
            if version is not None and version > HEAD:
                raise AccountsError(
                    f"{self.shown} was made by a newer kvweave (version {version} of its tables; "
                    f"this one knows {HEAD}): update kvweave, or name another database"
                )
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def parse_url(configured: str) -> URL:
    """A SQLAlchemy URL of what a configuration may say.

    Raises:
        AccountsError: it is no URL, or of a database that is not supported.
    """
    if "://" not in configured:
        return URL.create("sqlite", database=str(Path(configured).expanduser().absolute()))
    try:
        url = make_url(configured)
    except ArgumentError:
        raise AccountsError(
            "the URL of the accounts database cannot be read; write it as in "
            "postgresql://user@host/database, or give a file's path"
        ) from None
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise AccountsError("the accounts database must be a file: name one")
        return url.set(drivername="sqlite")
    if url.get_backend_name() in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise AccountsError(
        f"accounts cannot be kept in {url.get_backend_name()}: SQLite and PostgreSQL can be used"
    )


def _make_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return create_engine(
                url, pool_pre_ping=True, pool_size=4, connect_args={"connect_timeout": 10}
            )
        except ModuleNotFoundError:
            raise AccountsError(
                "PostgreSQL needs a driver that is not installed: pip install 'kvweave[postgres]'"
            ) from None
    file = Path(url.database or "")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Made here so that it is never readable for others, not even for a moment.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise AccountsError(
            f"the accounts database {file} cannot be opened: {error.strerror}; name another with "
            "accounts.database_url"
        ) from error
    engine = create_engine(url, connect_args={"timeout": _LOCK_WAIT_S, "check_same_thread": False})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection, record) -> None:  # type: ignore[no-untyped-def]
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, see below
    cursor = connection.cursor()
    # Readers never wait for the writer, and a commit is not forced to disk: a power cut may cost
    # the last moment's counts, never the database.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("kvweave_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _version(connection: Connection) -> str | None:
    """The step that the tables are at; None if there are none."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _why_not(error: DBAPIError | PoolTimeout, database: str) -> str:
    reason = str(error.orig if isinstance(error, DBAPIError) else error).strip().split("\n")[0]
    advice = "is the database server running, and may this user use it?"
    if "locked" in reason:
        advice = "another program holds it; SQLite files on network drives cannot be shared"
    elif "malformed" in reason or "not a database" in reason:
        advice = "the file is damaged or no database: restore a copy, or name another"
    elif "readonly" in reason or "unable to open" in reason or "disk" in reason:
        advice = "make room, or mend the permissions of the file and its folder"
    return f"the accounts database {database} cannot be used: {reason}; {advice}"
