from __future__ import annotations

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import AuthFailed, BadRequest, CallAborted, RequestTooLarge
from hummingbird_ai.http import new_session
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, VertexEndpoint
from hummingbird_ai.providers.google.exchange import exchange
from hummingbird_ai.testing import GeminiServer, say


def test_a_request_over_the_providers_bound_is_refused_before_it_is_sent_with_both_sizes() -> None:
    """Report 18: one huge tool result; the bound is on bytes, whatever the model's window."""
    with GeminiServer(lambda body, n: say("hi")) as server, new_session() as session:
        caller = ApiKeyEndpoint(server.api_key, server.url)
        with pytest.raises(RequestTooLarge, match=r"2,001 bytes, the provider takes 2,000"):
            exchange(session, caller, lambda: server.url, b"x" * 2001, headers={}, seconds=5, max_bytes=2000)
    assert not server.calls


def test_vertex_serves_claude_at_its_publishers_address() -> None:
    endpoint = VertexEndpoint(VertexAuth("my project"), "eu")

    assert endpoint.url("claude-haiku-4-5@20251001", publisher="anthropic", method="rawPredict") == (
        "https://aiplatform.eu.rep.googleapis.com/v1/projects/my%20project/locations/eu/publishers/anthropic/models/"
        "claude-haiku-4-5%4020251001:rawPredict"
    )
    with pytest.raises(BadRequest, match="the publisher is"):
        endpoint.url("m", publisher="")


def test_the_address_is_asked_for_after_the_headers_for_only_those_hear_an_abort() -> None:
    """Credentials may have to be looked up for both; whoever waits for another thread's look-up must hear the abort."""
    asked: list[Abort | None] = []
    abort = Abort()

    class Waiting:
        renewable = True

        def headers(self, *, renew: bool = False, abort: Abort | None = None) -> dict[str, str]:
            asked.append(abort)
            raise CallAborted("Cancelled")

    def never() -> str:
        raise AssertionError("waits for the credentials and hears nothing")

    with new_session() as session, pytest.raises(CallAborted):
        exchange(session, Waiting(), never, b"{}", headers={}, seconds=5, max_bytes=99, abort=abort)
    assert asked == [abort]


def test_a_key_that_is_refused_is_not_tried_again() -> None:
    with GeminiServer(lambda body, n: say("hi"), api_key="right") as server, new_session() as session:
        caller = ApiKeyEndpoint("wrong", server.url)
        address = caller.url("gemini-3.8-flash")
        reply = exchange(session, caller, lambda: address, b"{}", headers={}, seconds=5, max_bytes=99)

    assert reply.status == 400
    assert len(server.calls) == 1
    with pytest.raises(AuthFailed, match="characters that no key has"):
        ApiKeyEndpoint("two words")
