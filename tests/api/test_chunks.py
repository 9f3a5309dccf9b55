"""POST /v1/chunks: texts become known and are computed ahead."""

from __future__ import annotations

import pytest

from kvweave.prompt import chunk_digest

PASSAGE = "The lodge was built in 1871 by a family of millers."
OTHER = "It was sold to the parish only a year later."


async def test_ids_and_lengths_come_back(client):
    body = {"chunks": [{"id": "lodge", "text": PASSAGE}, {"text": OTHER}]}
    response = await client.post("/v1/chunks", json=body)
    assert response.json() == {
        "object": "list",
        "data": [
            {"id": "lodge", "tokens": len(PASSAGE)},
            {"id": chunk_digest(OTHER), "tokens": len(OTHER)},
        ],
    }


async def test_what_is_warmed_is_what_a_later_prompt_looks_up(client, engine, chat):
    body = {"chunks": [{"id": "lodge", "text": PASSAGE}], "system": "Be brief."}
    await client.post("/v1/chunks", json=body)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Context:\n{PASSAGE}\nWhen was it sold?"},
    ]
    await client.post("/v1/chat/completions", json=chat(messages=messages))
    ((prefix_ids, chunks),) = engine.warmed
    prompt = engine.prompts[0]
    assert prompt.prefix_ids == prefix_ids
    (chunk,) = [segment for segment in prompt.segments if segment.role == "chunk"]
    assert chunk.token_ids == chunks[0]
    assert chunk.chunk_id == "lodge"


async def test_documents_are_warmed_as_chat_requests_place_them(client, engine, chat):
    documents = [{"id": "d1", "title": "Lodge", "text": PASSAGE}]
    response = await client.post("/v1/chunks", json={"documents": documents})
    assert response.json()["data"][0]["id"] == "d1"
    await client.post("/v1/chat/completions", json=chat(documents=documents))
    chunks = [s.token_ids for s in engine.prompts[0].segments if s.role == "chunk"]
    assert engine.warmed == [(engine.prompts[0].prefix_ids, chunks)]


async def test_a_text_given_twice_is_warmed_once(client, engine):
    await client.post("/v1/chunks", json={"chunks": [{"text": PASSAGE}] * 3})
    assert len(engine.warmed[0][1]) == 1


async def test_texts_below_the_minimum_are_neither_registered_nor_warmed(client, engine, registry):
    response = await client.post("/v1/chunks", json={"chunks": [{"text": "short"}]})
    assert response.json()["data"] == [{"id": chunk_digest("short"), "tokens": 5}]
    assert len(registry) == 0
    assert engine.warmed[0][1] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "chunks"),
        ({"chunks": []}, "chunks"),
        ({"chunks": "x"}, "chunks"),
        ({"chunks": [{"text": ""}]}, "chunks[0].text"),
        ({"chunks": [{"text": "x"}, {"id": "a"}]}, "chunks[1].text"),
        ({"chunks": [{"text": "x", "id": 1}]}, "chunks[0].id"),
        ({"chunks": [{"text": "x"}], "system": 1}, "system"),
        ({"chunks": [{"text": "x"}], "sytem": "x"}, "sytem"),
        ({"documents": [{"text": 1}]}, "documents[0].text"),
        ({"chunks": [{"text": "x" * 3000}]}, "chunks"),
    ],
)
async def test_a_bad_body_is_an_error_that_names_the_field(client, registry, body, param):
    response = await client.post("/v1/chunks", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert len(registry) == 0
