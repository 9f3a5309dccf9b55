"""The engine behind Anthropic's messages and OpenAI's responses, called by the official clients."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from kvweave.engine import EngineOverloaded, EngineStopped

ANSWER = "It was built in 1871."
MODEL = "org/words"
QUESTION = [{"role": "user", "content": "When was it built?"}]
PASSAGE = "The lodge was built in 1871 by a family of millers."


@pytest.fixture
def claude(base_url) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=base_url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(base_url) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def chunks_of(prompt):
    return [segment for segment in prompt.segments if segment.role == "chunk"]


def test_a_message(claude, engine):
    message = claude.messages.create(model=MODEL, max_tokens=50, messages=QUESTION)
    assert message.content[0].text == ANSWER
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens == len(engine.prompts[0])
    assert message.usage.cache_read_input_tokens == 0
    assert message.usage.model_extra["kvweave"]["mode"] == "blend"
    assert engine.params[0].max_tokens == 50


def test_a_streamed_message(claude, engine):
    with claude.messages.stream(model=MODEL, max_tokens=50, messages=QUESTION) as stream:
        assert list(stream.text_stream) == list(engine.words)
        message = stream.get_final_message()
    assert message.usage.output_tokens == 6
    assert message.stop_reason == "end_turn"


async def test_the_async_client(base_url):
    async with (
        anthropic.AsyncAnthropic(base_url=base_url, api_key="unused") as client,
        client.messages.stream(model=MODEL, max_tokens=50, messages=QUESTION) as stream,
    ):
        assert (await stream.get_final_message()).content[0].text == ANSWER


def test_what_claude_code_sends_beside_the_request_does_no_harm(claude):
    message = claude.beta.messages.create(
        model=MODEL,
        max_tokens=50,
        messages=QUESTION,
        betas=["interleaved-thinking-2025-05-14", "no-such-beta"],
        thinking={"type": "enabled", "budget_tokens": 1024},
        metadata={"user_id": "kim"},
        extra_query={"beta": "true"},
    )
    assert message.content[0].text == ANSWER


def test_document_blocks_are_chunks_and_the_question_is_not(claude, engine):
    source = {"type": "text", "media_type": "text/plain", "data": PASSAGE}
    content = [
        {"type": "text", "text": "When was the lodge built? Answer with a year."},
        {"type": "document", "source": source, "title": "Lodge"},
    ]
    message = claude.messages.create(
        model=MODEL, max_tokens=50, messages=[{"role": "user", "content": content}]
    )
    (chunk,) = chunks_of(engine.prompts[0])
    assert len(chunk.token_ids) == len(f"Lodge\n{PASSAGE}\n")
    assert message.usage.cache_read_input_tokens == len(chunk.token_ids)


def test_a_cache_mark_makes_a_chunk_where_the_question_does_not_stand(claude, engine):
    marked = {"type": "text", "text": PASSAGE, "cache_control": {"type": "ephemeral"}}
    first = {"role": "user", "content": [marked]}
    turns = [first, {"role": "assistant", "content": "Noted."}]
    claude.messages.create(model=MODEL, max_tokens=9, messages=[*turns, *QUESTION])
    claude.messages.create(model=MODEL, max_tokens=9, messages=[first])
    assert [len(chunks_of(prompt)) for prompt in engine.prompts] == [1, 0]


def test_tokens_are_counted_with_the_models_tokenizer(claude, engine):
    asked = {"model": MODEL, "system": "Be brief.", "messages": QUESTION}
    counted = claude.messages.count_tokens(**asked).input_tokens
    claude.messages.create(**asked, max_tokens=5)
    assert counted == len(engine.prompts[0])


def test_models_are_listed_as_each_client_knows_them(claude, gpt):
    assert [model.id for model in claude.models.list()] == [MODEL]
    assert claude.models.retrieve(MODEL).type == "model"
    assert [model.object for model in gpt.models.list()] == ["model"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "expected", "kind"),
    [
        (EngineOverloaded(1), anthropic.RateLimitError, "rate_limit_error"),
        (EngineStopped(), anthropic.InternalServerError, "overloaded_error"),
        (RuntimeError("boom"), anthropic.InternalServerError, "api_error"),
    ],
)
def test_engine_errors_are_anthropics_exceptions(claude, engine, error, expected, kind, stream):
    engine.error = error
    with pytest.raises(expected) as caught:
        claude.messages.create(model=MODEL, max_tokens=5, messages=QUESTION, stream=stream)
    assert caught.value.body["error"]["type"] == kind
    assert caught.value.body["request_id"].startswith("req_")
    assert "boom" not in str(caught.value)


def test_an_error_within_a_stream_is_anthropics_exception(claude, engine):
    engine.error, engine.error_after = EngineStopped(), 2
    with (
        pytest.raises(anthropic.APIStatusError, match="not running"),
        claude.messages.stream(model=MODEL, max_tokens=50, messages=QUESTION) as stream,
    ):
        list(stream)


def test_bad_requests_are_anthropics_exceptions(claude):
    create = claude.messages.create
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.role"):
        create(model=MODEL, max_tokens=5, messages=[{"role": "king", "content": "x"}])
    with pytest.raises(anthropic.NotFoundError, match=r"Did you mean 'org/words'"):
        create(model="org/word", max_tokens=5, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .*2000"):
        create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "x" * 3000}])
    with pytest.raises(anthropic.BadRequestError, match="cannot call tools"):
        tool = {"name": "f", "input_schema": {"type": "object"}}
        create(model=MODEL, max_tokens=5, messages=QUESTION, tools=[tool])


def test_a_response(gpt, engine):
    response = gpt.responses.create(model=MODEL, input="When?", instructions="Be brief.")
    assert response.output_text == ANSWER
    assert response.status == "completed"
    assert response.instructions == "Be brief."
    assert response.usage.input_tokens == len(engine.prompts[0])
    assert response.usage.input_tokens_details.cached_tokens == 0


def test_a_response_that_was_cut_is_incomplete(gpt):
    response = gpt.responses.create(model=MODEL, input="When?", max_output_tokens=2)
    assert response.output_text == "It was"
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_streamed_response(gpt, engine):
    with gpt.responses.stream(model=MODEL, input="When?") as stream:
        events = list(stream)
        response = stream.get_final_response()
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert deltas == list(engine.words)
    assert response.output_text == ANSWER


def test_a_response_that_fails_says_so_in_its_last_event(gpt, engine):
    engine.error, engine.error_after = EngineStopped(), 2
    events = list(gpt.responses.create(model=MODEL, input="When?", stream=True))
    assert events[-1].type == "response.failed"
    assert "not running" in events[-1].response.error.message


def test_a_stored_conversation_is_refused_with_what_to_do(gpt):
    with pytest.raises(openai.BadRequestError, match="send the whole conversation") as caught:
        gpt.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"


def test_a_text_completion_has_no_chat_template_around_it(gpt, engine, registry):
    registry.add(PASSAGE, "lodge")
    done = gpt.completions.create(model=MODEL, prompt=f"Once. {PASSAGE} Then", max_tokens=50)
    assert done.choices[0].text == ANSWER
    (prompt,) = engine.prompts
    assert len(prompt) == len(f"Once. {PASSAGE} Then")
    assert [chunk.chunk_id for chunk in chunks_of(prompt)] == ["lodge"]
    assert prompt.prefix_ids == ()


def test_a_streamed_text_completion(gpt):
    stream = gpt.completions.create(
        model=MODEL,
        prompt="Once",
        max_tokens=50,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = list(stream)
    assert "".join(p.choices[0].text for p in pieces if p.choices) == ANSWER
    assert pieces[-1].usage.completion_tokens == 6


def test_embeddings_need_a_provider(gpt):
    with pytest.raises(openai.BadRequestError, match="makes no embeddings"):
        gpt.embeddings.create(model=MODEL, input="x")


@pytest.mark.parametrize("prefix", ["", "/v1", "/api", "/api/v1"])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_every_format_answers_under_every_prefix(client, prefix, slash):
    bodies = {
        "messages": {"model": MODEL, "max_tokens": 5, "messages": QUESTION},
        "messages/count_tokens": {"model": MODEL, "messages": QUESTION},
        "responses": {"model": MODEL, "input": "x"},
        "completions": {"model": MODEL, "prompt": "x"},
    }
    for path, body in bodies.items():
        response = await client.post(f"{prefix}/{path}{slash}?beta=true", json=body)
        assert response.status_code == 200, path


@pytest.mark.parametrize("path", ["/", "/v1", "/api/"])
async def test_probes_are_answered(client, path):
    assert (await client.head(path)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/messages/nothing", "/v1/messages"])
async def test_wrong_paths_are_told_in_anthropics_format(client, path):
    error = (await client.get(path)).json()
    assert error["type"] == "error"
    assert error["request_id"].startswith("req_")
