"""From token ids to the text that may be sent: whole characters only, cut at stop strings."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase


class AnswerText:
    """The growing text of one answer.

    Text that could still turn into a stop string, or into another character, is held back.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self._sent = 0
        self.stopped = False

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that these new tokens allow to be sent; sets `stopped` at a stop string."""
        if self.stopped:
            return ""
        self._ids += token_ids
        for token_id in token_ids:
            self._held += self._stream.step(self._tokenizer, token_id) or ""
        found = [at for at in (self._held.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            return self._release(min(found), drop=True)
        return self._release(len(self._held) - self._could_become_stop())

    def finish(self) -> str:
        """What was held back, now that no more tokens come."""
        if self.stopped:
            return ""
        # The stream keeps an unfinished character to itself; the decoder shows it as U+FFFD.
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        rest = whole[self._sent :]
        self._sent += len(rest)
        self._held = ""
        return rest

    def _release(self, length: int, *, drop: bool = False) -> str:
        text, self._held = self._held[:length], "" if drop else self._held[length:]
        self._sent += len(text)
        return text

    def _could_become_stop(self) -> int:
        """Length of the longest tail of the held text that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
