"""What a request says of its prompt: which stretches of its token ids are chunks.

The request middleware (or a client that tokenises by itself) sends it as
`kv_transfer_params["kvweave"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kvweave.prompt import Prompt, Role, Segment
from kvweave.reuse import Mode

#: The key of `kv_transfer_params` that is ours, in requests and in responses.
PARAMS_KEY = "kvweave"


class BadMarks(ValueError):
    """The marks of a request do not fit its prompt; the message says how."""


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("is not valid Unicode: it holds a lone surrogate") from error
    return text


UnicodeText = Annotated[str, AfterValidator(_unicode)]
"""JSON can spell lone surrogates, which nothing can encode."""


class SegmentMark(BaseModel):
    """One stretch of the prompt's token ids, in order; together they cover all of it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    role: Role
    tokens: int = Field(ge=1)
    id: UnicodeText | None = None


class PromptMarks(BaseModel):
    """`kv_transfer_params["kvweave"]` of a request.

    Attributes:
        segments: the prompt, cut into stretches.
        prefix_ids: ids of the shared prefix after which chunk KV is computed; None: those of the
            `system` segment that the prompt begins with, if it does.
        tenant: whose chunks these are; set by the server, never taken from a client.
        mode, recompute_ratio, selector, store_chunks: as in `kvweave.reuse.ReuseOptions`.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    segments: list[SegmentMark]
    prefix_ids: list[int] | None = None
    tenant: UnicodeText = ""
    mode: Mode = "blend"
    recompute_ratio: float | None = Field(default=None, ge=0, le=1)
    selector: str | None = None
    store_chunks: bool = True

    @property
    def blends(self) -> bool:
        """Whether cached chunks may be used."""
        return self.mode in ("blend", "reuse") and any(s.role == "chunk" for s in self.segments)

    def prompt(self, token_ids: Sequence[int]) -> Prompt:
        """The prompt that these token ids make.

        Raises:
            BadMarks: the segments do not cover them exactly.
        """
        covered = sum(segment.tokens for segment in self.segments)
        if covered != len(token_ids):
            raise BadMarks(
                f"the segments cover {covered} tokens, but the prompt has {len(token_ids)}"
            )
        segments = []
        position = 0
        for mark in self.segments:
            ids = tuple(token_ids[position : position + mark.tokens])
            segments.append(Segment(mark.role, ids, mark.id if mark.role == "chunk" else None))
            position += mark.tokens
        if self.prefix_ids is not None:
            prefix = tuple(self.prefix_ids)
        else:
            first = segments[0] if segments else None
            prefix = first.token_ids if first is not None and first.role == "system" else ()
        return Prompt(tuple(segments), prefix)

    def check_prefix(self, vocabulary: int, longest: int) -> None:
        """Raise BadMarks for a prefix that cannot be computed: other ids, or too many."""
        prefix = self.prefix_ids or []
        if any(not 0 <= token < vocabulary for token in prefix):
            raise BadMarks(f"prefix_ids: all must be from 0 to {vocabulary - 1}")
        chunk = max((s.tokens for s in self.segments if s.role == "chunk"), default=0)
        if len(prefix) + chunk > longest:
            raise BadMarks(
                f"prefix_ids: {len(prefix)} of them and a chunk of {chunk} tokens are more than "
                f"the {longest} tokens of the model's context"
            )

    @classmethod
    def of(cls, prompt: Prompt, **options: Any) -> PromptMarks:
        """The marks that describe `prompt`."""
        segments = [
            SegmentMark(role=segment.role, tokens=len(segment.token_ids), id=segment.chunk_id)
            for segment in prompt.segments
        ]
        return cls(segments=segments, prefix_ids=list(prompt.prefix_ids), **options)

    def to_params(self) -> dict[str, Any]:
        """As `kv_transfer_params` of a request."""
        return {PARAMS_KEY: self.model_dump(exclude_defaults=True)}


def parse_marks(kv_transfer_params: Mapping[str, Any] | None) -> PromptMarks | None:
    """The marks of a request, or None if it has none.

    Raises:
        BadMarks: they cannot be understood.
    """
    raw = (kv_transfer_params or {}).get(PARAMS_KEY)
    if raw is None:
        return None
    try:
        return PromptMarks.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in (PARAMS_KEY, *first["loc"]))
        raise BadMarks(f"kv_transfer_params.{where}: {first['msg']}") from None
