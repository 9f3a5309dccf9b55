"""Opening the database: made and brought up to date once, and errors that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

import kvweave.accounts.migrations
from kvweave.accounts import AccountsError, Database
from kvweave.accounts.database import HEAD
from kvweave.accounts.tables import metadata

OPEN = "import sys; from kvweave.accounts import Database; Database.open(sys.argv[1])"


def test_the_migrations_make_exactly_the_tables(database):
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_the_newest_migration_is_the_one_that_is_looked_for():
    folder = Path(kvweave.accounts.migrations.__file__).parent
    assert ScriptDirectory(str(folder)).get_heads() == [HEAD]


def test_processes_that_open_a_new_database_at_once_all_succeed(database_url):
    running = [subprocess.Popen([sys.executable, "-c", OPEN, database_url]) for _ in range(5)]
    assert [process.wait(120) for process in running] == [0] * 5


def test_what_fails_in_a_transaction_is_undone(database):
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        connection.execute(text("UPDATE key_changes SET version = 7"))
        raise ZeroDivisionError
    with database.read() as connection:
        assert connection.execute(text("SELECT version FROM key_changes")).scalar() == 0


def test_a_database_of_a_newer_version_is_left_alone(database, database_url):
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(AccountsError, match=r"made by a newer kvweave.*update kvweave"):
        Database.open(database_url)


def test_the_file_is_readable_for_its_owner_only(tmp_path):
    Database.open(str(tmp_path / "new" / "accounts.db")).close()
    assert (tmp_path / "new" / "accounts.db").stat().st_mode & 0o777 == 0o600


def test_the_environment_goes_before_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("KVWEAVE_DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
    Database.open(str(tmp_path / "accounts.db")).close()
    assert os.listdir(tmp_path) == ["other.db"]


def test_a_password_is_never_shown(monkeypatch):
    monkeypatch.setenv("KVWEAVE_DATABASE_URL", "postgresql://me:sesame@127.0.0.1:1/x")
    with pytest.raises(AccountsError) as error:
        Database.open("unused")
    assert "sesame" not in str(error.value)
    assert "me:***@127.0.0.1" in str(error.value)
    assert "database server running" in str(error.value)


BAD = {
    "mysql://host/x": "cannot be kept in mysql: SQLite and PostgreSQL",
    "sqlite://": "must be a file",
    "://": "cannot be read",
}


@pytest.mark.parametrize(("url", "said"), BAD.items())
def test_a_url_that_cannot_be_used_is_an_error_with_its_mend(url, said):
    with pytest.raises(AccountsError, match=said):
        Database.open(url)


def test_a_file_that_is_no_database_is_an_error_with_its_mend(tmp_path):
    (tmp_path / "accounts.db").write_text("not a database" * 100)
    with pytest.raises(AccountsError, match="damaged or no database"):
        Database.open(str(tmp_path / "accounts.db"))


def test_a_folder_that_cannot_be_made_is_an_error_with_its_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AccountsError, match=r"cannot be opened.*accounts\.database_url"):
        Database.open(str(tmp_path / "file" / "accounts.db"))


def test_a_missing_driver_is_an_error_with_its_mend(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(AccountsError, match=r"pip install 'kvweave\[postgres\]'"):
        Database.open("postgresql://me@127.0.0.1:1/x")
