"""The model's own tokenizer, which also renders tickets: vLLM's tokenizer mode `kvweave`.

A chat template gives text, and text is tokenised as one. The ids of a chunk would then depend on
its neighbours. The request middleware has encoded each piece alone and issued a ticket for the
result; where the template is asked to render a ticket, the ids themselves are given back.
"""

from __future__ import annotations

from typing import Any

from vllm.tokenizers.hf import CachedHfTokenizer, get_cached_tokenizer

from kvweave.integrations.vllm.tickets import TICKETS


class KvweaveTokenizer:
    """What vLLM's registry of tokenizers knows under `kvweave`."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """The tokenizer that vLLM would have loaded, and it takes tickets."""
        return with_tickets(CachedHfTokenizer.from_pretrained(*args, **kwargs))


def with_tickets(tokenizer: Any) -> Any:
    """`tokenizer`, its class replaced by one that takes tickets."""
    plain = tokenizer.__class__

    class TicketTokenizer(plain):  # type: ignore[misc, valid-type]
        def apply_chat_template(self, conversation: Any, *args: Any, **kwargs: Any) -> Any:
            token_ids = TICKETS.prompt_of(conversation)
            if token_ids is not None:
                return token_ids
            return super().apply_chat_template(conversation, *args, **kwargs)

        def __reduce__(self) -> Any:
            return _again, plain.__reduce__(self)[1]

    TicketTokenizer.__name__ = f"Ticket{plain.__name__}"
    tokenizer.__class__ = TicketTokenizer
    return tokenizer


def _again(tokenizer: Any) -> Any:
    """For copies: what vLLM's own class is rebuilt from, made to take tickets once more."""
    return with_tickets(get_cached_tokenizer(tokenizer))
