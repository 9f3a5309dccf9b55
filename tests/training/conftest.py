"""The training code is no part of the package: it is imported from the project's root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from kvweave.engine.loading import LoadedModel

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="session")
def tokenizer(smollm2: LoadedModel) -> PreTrainedTokenizerBase:
    return smollm2.tokenizer
