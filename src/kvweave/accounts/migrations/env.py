"""Runs the steps on the connection that `kvweave.accounts.database` hands over."""

from __future__ import annotations

from alembic import context

from kvweave.accounts.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
