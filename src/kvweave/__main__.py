"""`python -m kvweave`: the same as the `kvweave` command."""

from kvweave.cli import app

app()
