"""The server refuses the key."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

_MENDS = {
    "missing_api_key": "give the key: --key, or the variable KVWEAVE_API_KEY",
    "revoked_api_key": "use the key that replaced it, or make one: kvweave keys create --project "
    "NAME",
    "invalid_api_key": "use a key of this server (kvweave keys list shows their ids), or check "
    "that server and `kvweave keys` use the same accounts database",
    "model_not_allowed": "ask for a model that the key is for, or make a key for this one: "
    "kvweave keys create --project NAME --models MODEL",
}
_ELSEWHERE = "check that the key is this provider's, is not revoked, and is of the right project"


def check(subject: Subject) -> Iterator[Finding]:
    """Look for 401 and 403."""
    if subject.settings is None:
        return
    refused = next((o for o in (subject.models, subject.chat) if o.status in (401, 403)), None)
    if refused is None:
        return
    yield Finding(
        refused.code if refused.code in _MENDS else "key_refused",
        f"{refused.url} answers {refused.status}: {refused.told}",
        _MENDS.get(refused.code, _ELSEWHERE),
    )
