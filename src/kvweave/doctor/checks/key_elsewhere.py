"""A key of this server that goes to another one, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.accounts.secret import PREFIX
from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import host_of
from kvweave.doctor.subject import Subject

# Key, base URL, and where the key goes without one.
_PAIRS = (
    ("OPENAI_API_KEY", "OPENAI_BASE_URL", "api.openai.com"),
    ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "api.anthropic.com"),
    ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "api.anthropic.com"),
)
_PUBLIC = ("openai.com", "anthropic.com", "openrouter.ai", "googleapis.com", "groq.com")
_FOREIGN = ("sk-ant-", "sk-proj-", "sk-or-")


def check(subject: Subject) -> Iterator[Finding]:
    """Compare each key in the environment with the host that it goes to."""
    for key_name, url_name, default in _PAIRS:
        key = subject.environ.get(key_name, "").strip()
        url = subject.environ.get(url_name, "").strip()
        if not key:
            continue
        host = host_of(url) if url else default
        public = host.split(":")[0].endswith(_PUBLIC)
        if key.startswith(PREFIX) and public:
            why = f"{url_name} is not set" if not url else f"{url_name} names it"
            yield Finding(
                "key_sent_elsewhere",
                f"{key_name} holds a key of a kvweave server, but goes to {host}: {why}",
                f"set {url_name} to your server's address, and change the key if it was sent: "
                "kvweave keys rotate ID",
            )
        elif key.startswith(_FOREIGN) and not public:
            yield Finding(
                "foreign_key_sent_here",
                f"{key_name} holds a key of another provider, but goes to {host}, which "
                f"{url_name} names",
                f"set {key_name} to a key of {host}, and change the other one at its provider",
            )
