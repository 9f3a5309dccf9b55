"""POST /v1/chat/completions: what reaches the engine and what comes back."""

from __future__ import annotations

import asyncio
import json
import struct
from base64 import b64decode

import pytest

from kvweave.engine import Delta, ReuseOptions, SamplingParams
from kvweave.prompt import chunk_digest

PATH = "/v1/chat/completions"
ANSWER = "It was built in 1871."
PASSAGE = "The lodge was built in 1871 by a family of millers.\n\n"


def events(text: str) -> list[object]:
    """The payloads of a stream of server-sent events."""
    assert text.endswith("\n\n")
    lines = text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_a_whole_answer_is_a_chat_completion(client, engine, chat):
    response = await client.post(PATH, json=chat())
    assert response.status_code == 200
    answer = response.json()
    assert answer["id"].startswith("chatcmpl-")
    assert isinstance(answer["created"], int)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "org/words"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt_tokens = len(engine.prompts[0])
    usage = answer["usage"]
    assert usage["prompt_tokens"] == prompt_tokens
    assert usage["completion_tokens"] == 6
    assert usage["total_tokens"] == prompt_tokens + 6
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_usage_tells_what_was_reused(client, chat):
    parts = [{"type": "text", "text": PASSAGE}, {"type": "text", "text": "When?"}]
    body = chat(messages=[{"role": "user", "content": parts}])
    usage = (await client.post(PATH, json=body)).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(PASSAGE)
    report = usage["kvweave"]
    assert report["matched"] == len(PASSAGE)
    assert report["loaded_tokens"] == {"gpu": len(PASSAGE), "cpu": 0, "ssd": 0}
    assert report["time_ms"] == {"ttft": 1.5}
    assert report["chunks"] == [
        {
            "chunk_id": chunk_digest(PASSAGE),
            "tokens": len(PASSAGE),
            "tier": "gpu",
            "miss_reason": None,
            "loaded": False,
        }
    ]
    assert "first_token_logprobs" not in report


async def test_first_token_logprobs_are_base64_in_the_report(client, chat):
    body = chat(kvweave={"first_token_logprobs": True})
    report = (await client.post(PATH, json=body)).json()["usage"]["kvweave"]
    assert struct.unpack("<f", b64decode(report["first_token_logprobs"])) == (1.0,)


async def test_a_streamed_answer_is_chunks_with_the_role_first(client, chat):
    response = await client.post(PATH, json=chat(stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    chunks = events(response.text)
    assert len({(c["id"], c["created"], c["object"], c["model"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["delta"].get("content", "") for c in choices) == ANSWER
    assert [c["finish_reason"] for c in choices] == [None] * 7 + ["stop"]
    assert choices[-1]["delta"] == {}


async def test_include_usage_adds_one_last_chunk_without_choices(client, chat):
    body = chat(stream=True, stream_options={"include_usage": True})
    chunks = events((await client.post(PATH, json=body)).text)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-1]["usage"]["kvweave"]["mode"] == "blend"


async def test_text_in_a_stream_survives_any_characters(client, engine, chat):
    engine.words = ["a\u2028b\n\n", "data: x\r\n", "磨坊 🏠\x85"]
    chunks = events((await client.post(PATH, json=chat(stream=True))).text)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert text == "".join(engine.words)


async def test_deltas_without_text_are_not_sent(client, engine, chat):
    engine.words = ["", "It", ""]
    chunks = events((await client.post(PATH, json=chat(stream=True))).text)
    contents = [c["choices"][0]["delta"].get("content") for c in chunks]
    assert contents == ["", "It", None]


async def test_an_answer_that_was_cut_says_length(client, chat):
    answer = (await client.post(PATH, json=chat(max_tokens=2))).json()
    assert answer["choices"][0]["message"]["content"] == "It was"
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_sampling_parameters_reach_the_engine(client, engine, chat):
    body = chat(max_tokens=7, temperature=0, top_p=0.5, seed=-3, stop=["a", "b"])
    await client.post(PATH, json=body)
    expected = SamplingParams(max_tokens=7, temperature=0, top_p=0.5, seed=-3, stop=("a", "b"))
    assert engine.params == [expected]


async def test_null_means_absent(client, engine, chat):
    names = "max_tokens max_completion_tokens temperature top_p seed stop stream stream_options"
    names += " documents kvweave n tools tool_choice logprobs response_format user"
    response = await client.post(PATH, json=chat(**dict.fromkeys(names.split())))
    assert response.status_code == 200
    assert engine.params == [SamplingParams(max_tokens=1024)]
    assert engine.reuse == [ReuseOptions()]


async def test_one_stop_string_need_not_be_a_list(client, engine, chat):
    await client.post(PATH, json=chat(stop="\n"))
    assert engine.params[0].stop == ("\n",)


async def test_max_completion_tokens_wins_over_its_older_name(client, engine, chat):
    await client.post(PATH, json=chat(max_tokens=9, max_completion_tokens=5))
    assert engine.params[0].max_tokens == 5


async def test_without_max_tokens_the_answer_gets_what_is_left_of_the_context(client, engine, chat):
    messages = [{"role": "user", "content": "x" * 1900}]
    await client.post(PATH, json=chat(messages=messages))
    assert engine.params[0].max_tokens == 2000 - len(engine.prompts[0]) < 100


async def test_reuse_options_reach_the_engine(client, engine, chat):
    options = {"mode": "reuse", "recompute_ratio": 0.5, "selector": "query_attention"}
    await client.post(PATH, json=chat(kvweave=options))
    assert engine.reuse == [ReuseOptions("reuse", 0.5, "query_attention")]


async def test_documents_become_chunks(client, engine, chat):
    body = chat(documents=[{"id": "d1", "title": "Lodge", "text": PASSAGE}])
    await client.post(PATH, json=body)
    assert [s.chunk_id for s in engine.prompts[0].segments if s.role == "chunk"] == ["d1"]


async def test_variables_reach_the_chat_template(client, engine, chat, tokenizer):
    await client.post(PATH, json=chat(chat_template_kwargs={"enable_thinking": False}))
    assert tokenizer.decode(engine.prompts[0].token_ids).endswith("assistant\n<think></think>")


@pytest.mark.parametrize(
    "harmless",
    [
        {"n": 1},
        {"presence_penalty": 0, "frequency_penalty": 0.0},
        {"user": "kim", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"logprobs": False, "tools": [], "tool_choice": "none", "logit_bias": {}},
        {"response_format": {"type": "text"}, "modalities": ["text"]},
        {"parallel_tool_calls": True, "no_such_parameter": [1, 2]},
    ],
)
async def test_parameters_that_change_nothing_are_accepted(client, chat, harmless):
    assert (await client.post(PATH, json=chat(**harmless))).status_code == 200


async def test_an_engine_that_ends_without_a_finish_reason_is_a_failure(client, engine, chat):
    async def broken(*args, **kwargs):
        yield Delta("It", 1)

    engine.generate = broken
    assert (await client.post(PATH, json=chat())).status_code == 500


async def test_requests_run_side_by_side(client, engine, chat):
    engine.delay_s = 0.02
    answers = await asyncio.gather(
        *(client.post(PATH, json=chat(max_tokens=1 + i % 6)) for i in range(30))
    )
    for i, answer in enumerate(answers):
        text = answer.json()["choices"][0]["message"]["content"]
        assert text == "".join(engine.words[: 1 + i % 6])


async def test_building_a_long_prompt_does_not_hold_up_other_requests(client, app, engine, chat):
    engine.max_model_len = 10**8
    body = chat(messages=[{"role": "user", "content": "lodge " * 200_000}])
    slow = asyncio.create_task(client.post(PATH, json=body))
    answered = 0
    while not slow.done():
        await asyncio.sleep(0)
        assert (await client.get("/health")).status_code == 200
        answered += 1
    assert (await slow).status_code == 200
    assert answered > 100  # some 15 where the prompt is built on the event loop
