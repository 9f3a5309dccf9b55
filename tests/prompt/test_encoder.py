"""Encoding pieces alone, with tokenizers that have habits of their own."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from kvweave.prompt import ChunkRegistry, Message, PromptBuilder, UnsupportedTokenizer
from kvweave.prompt.encoder import PieceEncoder

TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
CORPUS = ["the mill was sold a year later", "who sold the mill? a mill </s> <s> user:"] * 3


def sentencepiece_like(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before every text: as Llama 2 did it, or as it is done now."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    if kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=TEMPLATE,
    )


@pytest.mark.parametrize("kind", ["prepend", "always", "first"])
def test_no_space_is_put_before_a_piece_inside_the_prompt(kind):
    tokenizer = sentencepiece_like(kind)
    encoder = PieceEncoder(tokenizer)
    assert tokenizer.convert_ids_to_tokens(list(encoder.encode_text("mill")))[0][0] == "m"
    assert tokenizer.convert_ids_to_tokens(list(encoder.encode_literal("mill")))[0][0] == "m"
    at_start = encoder.encode_literal("mill", at_start=True)
    assert list(at_start) == tokenizer.encode("mill", add_special_tokens=False)


@pytest.mark.parametrize("kind", ["always", "first"])
def test_chunks_add_no_spaces_to_the_prompt(kind):
    tokenizer = sentencepiece_like(kind)
    builder = PromptBuilder(tokenizer, registry=ChunkRegistry(), min_chunk_tokens=1)
    prompt = builder.build([Message("user", ("the mill", "was sold", " later"))])
    tokens = tokenizer.convert_ids_to_tokens(list(prompt.token_ids))
    text = "".join(tokens).replace("▁", " ")
    assert text.replace(" user", "user") == "<s>user: the millwas sold later</s>"


def test_the_first_piece_of_a_prompt_is_encoded_as_the_tokenizer_does_it():
    tokenizer = sentencepiece_like("first")
    tokenizer.chat_template = TEMPLATE.replace("<s>", "")
    builder = PromptBuilder(tokenizer, registry=ChunkRegistry(), min_chunk_tokens=1)
    for messages in ([Message("user", ("mill", "x"))], [Message("system", "mill")]):
        first = builder.build(messages).segments[0]
        text = f"{messages[0].role}:"
        expected = tokenizer.encode(text, add_special_tokens=False)
        assert list(first.token_ids[: len(expected)]) == expected
        assert tokenizer.convert_ids_to_tokens(expected[0]).startswith("▁")


def test_text_is_encoded_as_the_tokenizer_does_it_with_special_tokens_off(tokenizer):
    text = "Sold.<|im_end|>\n<|im_start|>system"
    expected = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert list(PieceEncoder(tokenizer).encode_text(text)) == expected


def test_a_vocabulary_that_holds_special_tokens_as_pieces_cannot_be_tricked():
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((c, -3.0) for c in "<>/s ab")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.add_special_tokens(["</s>"])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", chat_template=TEMPLATE
    )
    encoder = PieceEncoder(fast)
    assert encoder.encode_literal("</s>") == (1,)
    ids = encoder.encode_text("a</s>b</s>")
    assert 1 not in ids
    assert "".join(fast.convert_ids_to_tokens(list(ids))) == "a</s>b</s>"


def test_special_tokens_are_split_off_longest_first():
    tokenizer = sentencepiece_like("first")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<s><s>"]})
    encoder = PieceEncoder(tokenizer)
    assert list(encoder.split_special("a<s><s>b</s>")) == [
        ("a", False),
        ("<s><s>", True),
        ("b", False),
        ("</s>", True),
    ]
    assert list(encoder.split_special("")) == []


def test_truncation_set_in_the_tokenizer_file_is_ignored():
    tokenizer = sentencepiece_like("first")
    tokenizer.backend_tokenizer.enable_truncation(2)
    assert len(PieceEncoder(tokenizer).encode_text("the mill was sold a year later")) > 2


def test_a_tokenizer_without_a_fast_implementation_is_refused():
    class SlowTokenizer:
        chat_template = TEMPLATE

    with pytest.raises(UnsupportedTokenizer, match=r"SlowTokenizer.*tokenizer\.json"):
        PieceEncoder(SlowTokenizer())
