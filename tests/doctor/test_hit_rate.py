"""A hit rate of 0: each cause is made, found, and told."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import save_file

from kvweave.accounts import Database, UsageRecord
from kvweave.accounts.usage_log import UsageLog
from kvweave.doctor.checks import hit_rate
from kvweave.metrics import Metrics, RequestSample

GOOD = {"/v1/models": (200, {"data": [{"id": "m"}]})}


def sample(looked_up, hit=0, **misses) -> RequestSample:
    return RequestSample("blend", 0.1, 5000, 1, looked_up, Counter(gpu=hit), 0, 0, Counter(misses))


@pytest.fixture
def examined(subject, serve):
    """A subject whose server counted these requests."""

    def examined(*samples: RequestSample, **config):
        metrics = Metrics()
        metrics.set_model("m", "served")
        for counted in samples:
            metrics.observe(counted)
        page = metrics.render({}, 0).decode()
        return subject(f"{serve(GOOD | {'/metrics': (200, page)})}/v1", **config)

    return examined


def test_a_good_hit_rate_is_no_finding(examined):
    assert list(hit_rate.check(examined(sample(5000, hit=4000, new=2)))) == []


def test_nothing_is_concluded_from_a_few_requests(examined):
    assert list(hit_rate.check(examined(sample(500, new=3)))) == []


def test_a_server_without_these_counters_is_no_finding(subject, serve):
    assert list(hit_rate.check(subject(f"{serve(GOOD)}/v1"))) == []


REASONS = {
    "other_system_prompt": ("hit_rate_system_prompt", "a clock"),
    "evicted": ("hit_rate_cache_too_small", "kv_cache.ssd_cache_max_gb"),
    "unreadable": ("hit_rate_unreadable", "kvweave cache verify"),
    "new": ("hit_rate_new_texts", "white space"),
}


@pytest.mark.parametrize(("reason", "expected"), REASONS.items())
def test_the_reason_of_most_misses_is_told(examined, one, reason, expected):
    others = dict.fromkeys(REASONS, 1) | {reason: 20}
    finding = one(hit_rate.check, examined(sample(5000, hit=10, **others)))
    assert finding.code == expected[0]
    assert expected[1] in finding.mend
    assert "of 5,000 chunk tokens looked up, 0% were cached" in finding.message


def test_prompts_without_chunks_are_found(examined, one):
    finding = one(hit_rate.check, examined(*[sample(0)] * 20))
    assert finding.code == "hit_rate_no_chunks"
    assert "prompt.min_chunk_tokens = 16" in finding.message


FORM = {"shape": "[2,2,2,60,16]", "dtype": "bfloat16", "storage": "auto"}


def stored(folder, key, content, model="served", **form):
    (folder / key[:2]).mkdir(parents=True, exist_ok=True)
    about = FORM | form | {"content": content, "model": model}
    save_file({"kv": np.zeros(4)}, folder / key[:2] / f"{key}.safetensors", about)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "other weights, another tokenizer or another chat template"),
        ({"dtype": "float32"}, "another dtype"),
        ({"shape": "[9,2,2,60,16]", "storage": "int8"}, "architecture and another storage"),
    ],
)
def test_texts_stored_by_another_model_are_found(examined, one, tmp_path, form, said):
    stored(tmp_path / "kv", "aa1", "text")
    stored(tmp_path / "kv", "bb2", "text", "before", **form)
    stored(tmp_path / "kv", "bb3", "another text", "before")
    (tmp_path / "kv" / "aa" / "broken.safetensors").write_text("x")
    finding = one(hit_rate.check, examined(sample(5000, new=20)))
    assert finding.code == "hit_rate_model_identity"
    assert "1 texts that this model had to compute" in finding.message
    assert said in finding.message


def test_texts_stored_after_several_system_prompts_are_found(examined, one, tmp_path):
    stored(tmp_path / "kv", "aa1", "text")
    stored(tmp_path / "kv", "bb2", "text")
    finding = one(hit_rate.check, examined(sample(5000, new=20)))
    assert finding.code == "hit_rate_system_prompt"
    assert "1 texts are stored after several system prompts" in finding.message


def test_what_other_models_stored_alone_is_no_reason(examined, one, tmp_path):
    """Two servers may share a folder, each with texts of its own."""
    stored(tmp_path / "kv", "aa1", "text")
    stored(tmp_path / "kv", "bb2", "another text", "before")
    assert one(hit_rate.check, examined(sample(5000, new=20))).code == "hit_rate_new_texts"


def test_several_projects_with_the_same_server_are_found(examined, one, tmp_path):
    database = Database.open(str(tmp_path / "accounts.db"))
    log = UsageLog(database)
    for project in ("one", "other"):
        log.record(
            UsageRecord(1.0, project, "k", "m", "kvweave", "x", 200, None, 9, 0, 1, None, 1.0)
        )
    log.flush()
    database.close()
    finding = one(hit_rate.check, examined(sample(5000, new=20)))
    assert finding.code == "hit_rate_other_tenant"
    assert "one, other" in finding.message
