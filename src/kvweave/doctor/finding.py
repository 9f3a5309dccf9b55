"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or will be.

    Attributes:
        code: its name, in lower case; the same for the same kind of trouble.
        message: what is the case, and where. Never holds a key.
        mend: what to do about it.
    """

    code: str
    message: str
    mend: str
