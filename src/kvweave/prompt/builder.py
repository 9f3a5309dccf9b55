"""Chat messages to prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from kvweave.prompt.content import Chunk, ChunkOrder, ContentSplitter
from kvweave.prompt.encoder import PieceEncoder
from kvweave.prompt.errors import PromptError, UnsupportedTokenizer
from kvweave.prompt.marks import MangledMark, Marks
from kvweave.prompt.messages import Document, Message
from kvweave.prompt.registry import ChunkRegistry
from kvweave.prompt.segments import Prompt, Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Where a request says which variables its chat template gets.
TEMPLATE_KWARGS = "chat_template_kwargs"
_RENDERING = frozenset(
    "add_generation_prompt chat_template continue_final_message conversation documents max_length "
    "messages padding return_assistant_tokens_mask return_dict return_tensors tokenize "
    "tokenizer_kwargs tools truncation".split()
)


class PromptBuilder:
    """Builds prompts in which a chunk's ids are the same wherever it stands. Thread-safe.

    The tokenizer's chat template is rendered once, with a mark in place of each chunk. The rendered
    text is cut at the marks, each piece is encoded alone, and the ids are spliced. Content that is
    not a chunk reaches the template as it is, so that templates which trim, split or inspect it
    work as always; a chunk is put back verbatim, also where the template would have trimmed it.

    Special tokens come from the template only. Chunks are encoded with special tokens off. Fresh
    text is encoded together with the template text around it, as usual, except where it spells out
    a special token: that spot alone is marked too, and encoded as plain characters. So only text
    that tries to write a special token gets seams of its own. Added tokens that are not special,
    such as `<think>`, are ordinary vocabulary and stay what they are.

    Chunk KV is computed after a shared prefix: the template rendered for the leading system
    messages and the beginning of a user message, up to where the user's text, or a chunk within
    the system messages, would start. It does not depend on any later message. A prompt that begins
    with this text gets it as a `system` segment.

    Args:
        tokenizer: the model's tokenizer, with a chat template and a fast implementation.
        min_chunk_tokens: shorter chunks join the fresh text around them.
        order_chunks: `by_id` sorts each run of consecutive chunks by chunk id, so that equal sets
            give equal prompts.
        registry: texts that are chunks wherever they occur.

    Raises:
        UnsupportedTokenizer: the tokenizer has no chat template or no fast implementation.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        min_chunk_tokens: int = 16,
        order_chunks: ChunkOrder = "as_given",
        registry: ChunkRegistry,
    ) -> None:
        if not tokenizer.chat_template:
            raise UnsupportedTokenizer(
                "the model's tokenizer has no chat template; take the instruct or chat version"
            )
        self._tokenizer = tokenizer
        self._encoder = PieceEncoder(tokenizer)
        self._splitter = ContentSplitter(
            self._encoder, registry, min_chunk_tokens=min_chunk_tokens, order_chunks=order_chunks
        )
        self._min_chunk_tokens = min_chunk_tokens
        self._takes_tools = _takes_tools(tokenizer)

    @property
    def min_chunk_tokens(self) -> int:
        """Length in tokens below which a text is not a chunk."""
        return self._min_chunk_tokens

    @property
    def renders_documents(self) -> bool:
        """Whether the chat template has a place of its own for documents."""
        return "documents" in str(self._tokenizer.chat_template)

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template has a place for tools, and tells the model to call them so
        that `<tool_call>` marks a call."""
        return self._takes_tools

    def build(
        self,
        messages: Sequence[Message],
        documents: Sequence[Document] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        tenant: str = "",
    ) -> Prompt:
        """The prompt for `messages`, ending where the assistant's answer begins.

        `documents` are put at the start of the last user message. `tools` are functions in OpenAI's
        form. `template_kwargs` are variables of the chat template's own, such as `enable_thinking`.
        `tenant` is whose registered texts are looked for.

        Raises:
            PromptError: there is nothing to build from, a text is not valid Unicode, the model
                takes no tools, or the chat template refuses the messages.
        """
        template_kwargs = template_kwargs or {}
        _check_template_kwargs(template_kwargs)
        documents = documents or ()
        if not messages:
            raise PromptError("must hold at least one message", "messages")
        if tools and not self._takes_tools:
            raise PromptError(
                "this model cannot call tools: its chat template has no place for them; leave them "
                'out, or set tool_choice to "none"',
                "tools",
            )
        _check_unicode(messages, documents)
        last_user = _last_index_of_role(messages, "user")
        if documents and last_user is None:
            raise PromptError("need a user message to stand in; there is none", "documents")
        texts = [text for message in messages for text in message.texts]
        texts += [document.chunk_text for document in documents]
        texts += _strings_in([call.arguments for m in messages for call in m.tool_calls])
        texts += _strings_in([call.name for m in messages for call in m.tool_calls])
        texts += _strings_in([list(tools), template_kwargs])
        marks = _ChatMarks(
            chunks=Marks(texts, delimiters=("\ue000", "\ue001")),
            special=Marks(texts, delimiters=("\ue002", "\ue003")),
        )
        conversation = [
            self._template_message(
                message,
                self._splitter.split(
                    message,
                    documents if index == last_user else (),
                    tenant=tenant,
                    is_last=index == len(messages) - 1,
                ),
                marks,
            )
            for index, message in enumerate(messages)
        ]
        arguments = self._marked_value(template_kwargs, marks, TEMPLATE_KWARGS)
        arguments["tools"] = self._marked_value(tools, marks, "tools") or None
        try:
            return self._splice(conversation, arguments, marks)
        except MangledMark:
            raise PromptError(
                "the model's chat template changes the text it is given, so chunks and spelt-out "
                "special tokens in it cannot be put back; send content without them",
                "messages",
            ) from None

    def build_text(self, text: str, *, tenant: str = "") -> Prompt:
        """The prompt that consists of `text`, without a chat template around it.

        Registered texts in it are chunks, but they stand after no system prefix.

        Raises:
            PromptError: the text is empty or not valid Unicode.
        """
        _check_encodes(text, "prompt")
        segments: list[Segment] = []
        for piece in self._splitter.find_registered(text, tenant):
            if isinstance(piece, Chunk):
                segments.append(Segment("chunk", piece.token_ids, piece.chunk_id))
                continue
            ids: list[int] = []
            for stretch, is_special in self._encoder.split_special(piece):
                if is_special:
                    ids += self._encoder.encode_text(stretch)
                else:
                    ids += self._encoder.encode_literal(stretch, at_start=not segments and not ids)
            if ids:
                segments.append(Segment("fresh", tuple(ids)))
        if not segments:
            raise PromptError("must not be empty", "prompt")
        return Prompt(tuple(segments), ())

    def prefix_ids(
        self,
        system: str | None = None,
        *,
        template_kwargs: Mapping[str, Any] | None = None,
        tenant: str = "",
    ) -> tuple[int, ...]:
        """Ids of the prefix that prompts with this system message share.

        Raises:
            PromptError: as for `build`.
        """
        messages = [Message("user", "")]
        if system is not None:
            messages.insert(0, Message("system", system))
        prompt = self.build(messages, template_kwargs=template_kwargs, tenant=tenant)
        return prompt.prefix_ids

    def encode_chunk(self, text: str) -> tuple[int, ...]:
        """The ids that `text` has as a chunk, in every prompt."""
        return self._encoder.encode_text(text)

    def _marked_content(self, pieces: Iterable[str | Chunk], marks: _ChatMarks) -> str:
        """The content as the template gets it: chunks and spelt-out special tokens are marked."""
        marked: list[str] = []
        for piece in pieces:
            if isinstance(piece, Chunk):
                marked.append(marks.chunks.mark(piece))
                continue
            for stretch, is_special in self._encoder.split_special(piece):
                marked.append(marks.special.mark(stretch) if is_special else stretch)
        return "".join(marked)

    def _template_message(
        self, message: Message, pieces: Iterable[str | Chunk], marks: _ChatMarks
    ) -> dict[str, Any]:
        """A message as the template gets it."""
        fields: dict[str, Any] = {
            "role": message.role,
            "content": self._marked_content(pieces, marks),
        }
        if message.tool_calls:
            fields["tool_calls"] = [
                self._marked_value(
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    },
                    marks,
                    "messages",
                )
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            fields["tool_call_id"] = message.tool_call_id
        return fields

    def _marked_value(self, value: Any, marks: _ChatMarks, path: str) -> Any:
        """A JSON value in whose strings spelt-out special tokens are marked."""
        if isinstance(value, str):
            _check_encodes(value, path)
            return self._marked_content([value], marks)
        if isinstance(value, Mapping):
            return {
                self._marked_value(key, marks, path): self._marked_value(item, marks, path)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._marked_value(item, marks, path) for item in value]
        return value

    def _splice(
        self,
        conversation: list[dict[str, Any]],
        arguments: Mapping[str, Any],
        marks: _ChatMarks,
    ) -> Prompt:
        head, rest = marks.chunks.split(self._render(conversation, arguments))
        prefix = self._prefix_text(conversation, arguments, marks)
        prefix_ids = self._encode_run(prefix, marks, at_start=True)
        segments: list[Segment] = []
        if head.startswith(prefix):
            segments.append(Segment("system", prefix_ids))
            segments.append(Segment("fresh", self._encode_run(head[len(prefix) :], marks)))
        else:
            segments.append(Segment("fresh", self._encode_run(head, marks, at_start=True)))
        for chunk, literal in rest:
            if chunk is not None:
                segments.append(Segment("chunk", chunk.token_ids, chunk.chunk_id))
            segments.append(Segment("fresh", self._encode_run(literal, marks)))
        prompt = Prompt(tuple(s for s in segments if s.token_ids), prefix_ids)
        if not prompt.segments:
            raise PromptError("make an empty prompt", "messages")
        return prompt

    def _prefix_text(
        self,
        conversation: list[dict[str, Any]],
        arguments: Mapping[str, Any],
        marks: _ChatMarks,
    ) -> str:
        leading = list(takewhile(lambda message: message["role"] == "system", conversation))
        user = {"role": "user", "content": marks.chunks.mark(None)}
        head, rest = marks.chunks.split(self._render([*leading, user], arguments))
        return head if rest else ""

    def _render(self, conversation: list[dict[str, Any]], arguments: Mapping[str, Any]) -> str:
        try:
            rendered = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, **arguments
            )
        except Exception as error:  # the template is the model's code and may raise anything
            raise PromptError(
                f"the model's chat template refuses them: {error}", "messages"
            ) from error
        return cast(str, rendered)

    def _encode_run(
        self, run: str, marks: _ChatMarks, *, at_start: bool = False
    ) -> tuple[int, ...]:
        """Ids of rendered text without chunks."""
        literal, rest = marks.special.split(run)
        ids = list(self._encoder.encode_literal(literal, at_start=at_start))
        for special, literal in rest:
            ids += self._encoder.encode_text(special)
            ids += self._encoder.encode_literal(literal)
        return tuple(ids)


@dataclass(frozen=True, slots=True)
class _ChatMarks:
    """The marks of one prompt."""

    chunks: Marks[Chunk | None]  # None stands where the shared prefix ends
    special: Marks[str]  # special tokens spelt out by the input


def _last_index_of_role(messages: Sequence[Message], role: str) -> int | None:
    return max((i for i, message in enumerate(messages) if message.role == role), default=None)


def _takes_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
    template = tokenizer.get_chat_template(tools=[{}])
    return "<tool_call>" in template and re.search(r"\btools\b", template) is not None


def _strings_in(value: object) -> Iterator[str]:
    """Every string within a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _strings_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings_in(item)


def _check_unicode(messages: Sequence[Message], documents: Sequence[Document]) -> None:
    """Raise for lone surrogates, which JSON can spell but no tokenizer can encode."""
    for index, message in enumerate(messages):
        if isinstance(message.content, str):
            _check_encodes(message.content, f"messages[{index}].content")
        else:
            for part, text in enumerate(message.texts):
                _check_encodes(text, f"messages[{index}].content[{part}].text")
        _check_encodes(message.tool_call_id or "", f"messages[{index}].tool_call_id")
    for index, document in enumerate(documents):
        for field in ("id", "title", "text"):
            _check_encodes(getattr(document, field) or "", f"documents[{index}].{field}")


def _check_template_kwargs(kwargs: Mapping[str, Any]) -> None:
    """Raise for names that are no variables of the template: they change how it is rendered."""
    taken = sorted(_RENDERING & kwargs.keys())
    if taken:
        raise PromptError(f"cannot set {', '.join(taken)}", TEMPLATE_KWARGS)


def _check_encodes(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"is not valid Unicode: a lone surrogate at character {error.start}", path
        ) from None
