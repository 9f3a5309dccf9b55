"""The text of a key: how it is made, what of it is stored, and what is wrong with one.

`kvw_<id>_<secret><check>`: ten characters that may be shown, 43 that may not (256 random bits), and
six that tell a damaged key from a wrong one without asking the database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass

PREFIX = "kvw_"
_ALPHABET = string.digits + string.ascii_letters
_ID_CHARS, _SECRET_CHARS, _CHECK_CHARS = 10, 43, 6
_LENGTH = len(PREFIX) + _ID_CHARS + 1 + _SECRET_CHARS + _CHECK_CHARS
_SHAPE = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{_ID_CHARS}}})_([0-9A-Za-z]{{{_SECRET_CHARS + _CHECK_CHARS}}})"
)
_QUOTES = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb"  # straight and typographic
_VARIABLE = re.compile(r"\$\{?\w+\}?|%\w+%|\{\{.*\}\}|<.*>")
_OTHERS = {
    "sk-ant-": "of Anthropic",
    "sk-or-": "of OpenRouter",
    "sk-": "in OpenAI's form",
    "gsk_": "of Groq",
    "hf_": "of Hugging Face",
    "AIza": "of Google",
}


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. `text` is all of it, and is kept nowhere."""

    id: str
    text: str
    salt: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A key as a client sent it, well-formed. `hint` tells of what was trimmed off it."""

    id: str
    text: str
    hint: str


class MalformedKey(ValueError):
    """A text that cannot be a key of this server. The message never holds it."""


def new_key() -> NewKey:
    """A fresh random key."""
    body = f"{PREFIX}{_random(_ID_CHARS)}_{_random(_SECRET_CHARS)}"
    text = body + _check(body)
    salt = secrets.token_bytes(16)
    return NewKey(text[len(PREFIX) :][:_ID_CHARS], text, salt, digest(text, salt))


def digest(text: str, salt: bytes) -> bytes:
    """What is stored of a key: 32 bytes.

    The secret has 256 random bits, so no slow hash is needed to keep it from being guessed.
    """
    return hashlib.blake2b(text.encode(), digest_size=32, salt=salt, person=b"kvweave key").digest()


def matches(text: str, salt: bytes, stored: bytes) -> bool:
    """Whether `text` is the key whose digest is `stored`, in constant time."""
    return hmac.compare_digest(digest(text, salt), stored)


def parse(sent: str) -> PresentedKey:
    """The key that a client means by `sent`; whitespace and quotes around it are forgiven.

    Raises:
        MalformedKey: it cannot be one; the message says what it looks like.
    """
    text, hint = _trim(sent)
    if not text:
        raise MalformedKey(f"The key is empty.{hint}")
    if shape := _SHAPE.fullmatch(text):
        if hmac.compare_digest(_check(text[:-_CHECK_CHARS]), text[-_CHECK_CHARS:]):
            return PresentedKey(shape[1], text, hint)
        raise MalformedKey(f"A character of the key is wrong: copy it again.{hint}")
    raise MalformedKey(f"{_what_is_wrong(text)}{hint}")


def key_id(text: str) -> str:
    """The id of a key named by its id or by all of it."""
    text, _ = _trim(text)
    shape = _SHAPE.fullmatch(text)
    return shape[1] if shape else text.removeprefix(PREFIX).split("_")[0]


def _trim(sent: str) -> tuple[str, str]:
    text = sent.strip()
    bare = text.strip(_QUOTES + string.whitespace)
    while bare[:7].lower() == "bearer ":
        bare = bare[7:].strip(_QUOTES + string.whitespace)
    if bare != text:
        return bare, " (It came with quotes or another word around it, which were left out.)"
    return bare, " (It came with white space around it, left out.)" if text != sent else ""


def _what_is_wrong(text: str) -> str:
    if _VARIABLE.fullmatch(text):
        return "The key is a placeholder or the name of a variable, not its value."
    if re.search(r"\s", text):
        return "There is white space inside the key, as when it was copied over a line's end."
    if not text.isascii():
        return "The key has characters that no key has; it may have been copied from a document."
    if text.startswith(PREFIX):
        return (
            f"The key is not complete: it has {len(text)} characters, a whole one has {_LENGTH}."
            if len(text) < _LENGTH
            else f"The key has {len(text)} characters, {len(text) - _LENGTH} too many."
            if len(text) > _LENGTH
            else "A character of the key is wrong: copy it again."
        )
    for prefix, owner in _OTHERS.items():
        if text.startswith(prefix):
            return (
                f"This is a key {owner} ({prefix}...), not one of this server, whose keys begin "
                f"with {PREFIX}. Change it there if it should not have come here."
            )
    return f"This is no key of this server: they begin with {PREFIX}."


def _random(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


def _check(body: str) -> str:
    number = zlib.crc32(body.encode())
    chars = []
    for _ in range(_CHECK_CHARS):
        number, index = divmod(number, len(_ALPHABET))
        chars.append(_ALPHABET[index])
    return "".join(reversed(chars))
