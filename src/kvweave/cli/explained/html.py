"""An explanation as one HTML page that needs nothing else."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader

_FATES = (
    ("computed", "#1559b7", "not in the cache"),
    ("exact", "#4f8a5b", "loaded, equal to a full prefill"),
    ("kept", "#c3c9d4", "loaded as stored"),
    ("selected", "#d64020", "loaded and computed again"),
)


def render_html(explanation: dict[str, Any]) -> str:
    """The page for what `Explanation.to_json` gives. Texts of the prompt are escaped."""
    template = Environment(
        loader=PackageLoader("kvweave.cli.explained", ""), autoescape=True
    ).get_template("page.html")
    weighed = any(segment["weights"] for segment in explanation["segments"])
    return template.render(**explanation, fates=_FATES, weighed=weighed)
