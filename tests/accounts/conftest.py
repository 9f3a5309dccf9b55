"""Databases of both kinds, fresh for each test, and a clock that stands still."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvweave.accounts import Database, KeyStore


def _programs() -> Path:
    """The folder of PostgreSQL's server programs; Debian keeps them off the PATH."""
    found = [Path(p).resolve().parent for p in [shutil.which("initdb")] if p]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.fail(
        "these tests start a PostgreSQL server, whose programs are missing: "
        "install them with `apt-get install postgresql`",
        pytrace=False,
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL server that runs for the tests only, on loopback."""
    programs = _programs()
    # Its server refuses to run as root, so root runs it as the user that Debian's package makes.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="kvweave-postgres-") as folder:
        if as_user:
            shutil.chown(folder, "postgres")
        data = f"{folder}/data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [*as_user, str(programs / program), "-D", data, *arguments],
                stdout=subprocess.DEVNULL,  # a pipe would be kept open by the server
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
            assert done.returncode == 0, f"{program} failed; its log: {_log(folder)}"

        run("initdb", "--username=kvweave", "--auth=trust", "--no-sync", "--encoding=UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k '' -c fsync=off"
        run("pg_ctl", "start", "-w", "-t", "120", "-l", f"{folder}/log", "-o", options)
        try:
            yield f"postgresql://kvweave@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate")


def _log(folder: str) -> str:
    log = Path(folder) / "log"
    return log.read_text()[-2000:] if log.exists() else "(none)"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "accounts.db")
    import psycopg

    server = request.getfixturevalue("postgres")
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}/{name}"


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.delenv("KVWEAVE_DATABASE_URL", raising=False)
    database = Database.open(database_url)
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> KeyStore:
    return KeyStore(database)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool
