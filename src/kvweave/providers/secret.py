"""Keys: where they are read from, and how they are kept out of logs and errors."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from pydantic import SecretStr

from kvweave.config import ProviderConfig
from kvweave.providers.errors import ProviderSetupError

log = logging.getLogger(__name__)


def read_key(config: ProviderConfig) -> SecretStr | None:
    """The provider's key; None if it has none.

    White space around it is dropped: keys are pasted.

    Raises:
        ProviderSetupError: it cannot be read, is empty, or has white space inside.
    """
    where = f"providers.{config.name}"
    if config.api_key_env:
        where += f".api_key_env: the environment variable {config.api_key_env}"
        value = os.environ.get(config.api_key_env)
        if value is None:
            raise ProviderSetupError(f"{where} is not set; set it before the server starts")
    elif config.api_key_file is not None:
        where += f".api_key_file: {config.api_key_file}"
        value = _read_file(config.api_key_file, where)
    else:
        return None
    value = value.strip()
    if not value:
        raise ProviderSetupError(f"{where} is empty; put the key there")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ProviderSetupError(
            f"{where} holds white space or other characters that no key has; "
            "it must hold the key alone, on one line"
        )
    return SecretStr(value)


def _read_file(path: Path, where: str) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                log.warning("%s can be read by others; run: chmod 600 %s", where, path)
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise ProviderSetupError(f"{where} cannot be read: {reason}") from None


# What keys look like, whoever gave them out.
_KEY = re.compile(
    r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}"
    r"|\b((?:sk|pk|rk|xai|gsk|hf|nvapi|kvw)[-_])[\w*-]{6,}"
    r"|\b((?:x-)?api[-_]?key[\"']?\s*[:=]\s*[\"']?)[\w.~+/=-]{6,}"
)


def redact(text: str, *keys: SecretStr | None) -> str:
    """`text` without these keys, nor anything else that looks like one."""
    for key in keys:
        if key is not None:
            text = text.replace(key.get_secret_value(), "[key]")
    return _KEY.sub(lambda found: "".join(filter(None, found.groups())) + "[key]", text)


class RedactKeys(logging.Filter):
    """Takes keys out of log records, arguments and tracebacks included."""

    def __init__(self, *keys: SecretStr | None) -> None:
        super().__init__()
        self._keys = keys

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrites the record; drops none."""
        record.msg, record.args = redact(record.getMessage(), *self._keys), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text, *self._keys)
        return True
