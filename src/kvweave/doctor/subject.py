"""What the doctor looks at. Requests are sent when a check first asks for their outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvweave.doctor.probe import Outcome, Probe, Settings

if TYPE_CHECKING:
    from kvweave.config import Config


class Subject:
    """A machine, a configuration, and the settings of a client.

    Args:
        config: of the server on this machine.
        settings: of a client; None: there is nothing to ask.
        environ: the environment that clients are started with.
        home: the user's home folder, with other programs' settings.
    """

    def __init__(
        self,
        config: Config,
        settings: Settings | None,
        *,
        environ: Mapping[str, str],
        home: Path,
    ) -> None:
        self.config = config
        self.settings = settings
        self.environ = environ
        self.home = home

    @cached_property
    def probe(self) -> Probe:
        """Asks with the client's settings, and its model or else the first that is served."""
        assert self.settings is not None
        return Probe(self.settings)

    @cached_property
    def models(self) -> Outcome:
        """The list of models."""
        return self.probe.models()

    @cached_property
    def chat(self) -> Outcome:
        """A small request."""
        settings = self.probe.settings
        if settings.model:
            return self.probe.chat()
        first = next(iter(self.model_names), "")
        return Probe(replace(settings, model=first)).chat()

    @property
    def model_names(self) -> list[str]:
        """Names of the models that the server lists."""
        return names_of(self.models)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The server's counters, by name with labels; empty if it shows none."""
        parts = urlsplit(self.probe.settings.base_url)
        outcome = self.probe.get(f"{parts.scheme}://{parts.netloc}/metrics")
        return counters_of(outcome.text) if outcome.ok else {}


def counters_of(page: str) -> dict[str, float]:
    """What a page in Prometheus' text format tells, by name with labels."""
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    except ValueError:  # another kind of page
        return {}
    return found


def names_of(outcome: Outcome) -> list[str]:
    """The names in a list of models; none if it is something else."""
    data: Any = outcome.body.get("data") if isinstance(outcome.body, dict) else None
    entries = data if isinstance(data, list) else []
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
