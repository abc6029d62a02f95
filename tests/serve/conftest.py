"""A server around the tiny model, on a free port, for the tests of one file."""

import openai
import pytest
from serve_cases import settled

from kvlab import LLM
from kvlab.serve import Server


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


@pytest.fixture(scope="module")
def server(llm):
    with Server(llm) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture
def clean(server):
    """After the test nothing is left of its requests."""
    yield
    assert settled(server) == (0, 0)
