from __future__ import annotations

from collections.abc import Callable
from typing import Any

import google.auth.transport.requests
import google.oauth2.credentials
import google.oauth2.service_account
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hummingbird_ai.testing import Body, ClaudeServer, HttpError, Reply, say
from tests.unit.hummingbird_ai.testing.claude.talk import NEWEST, SEARCHES, ask, conversation, path, post


def test_a_correct_conversation_is_accepted_behind_any_prefix() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        for prefix in ("", "/proxy/vertex"):
            given = {"Authorization": "Bearer test-token", **SEARCHES}
            response = requests.post(server.url + path(prefix=prefix), json=conversation(), headers=given, timeout=10)
            assert response.status_code == 200
        assert [(call.provider, call.model, call.refused) for call in server.calls] == [("anthropic", NEWEST, None)] * 2


@pytest.mark.parametrize("model", ["claude-haiku-4-5@20251001", "claude-haiku-4-5%4020251001", "claude-fable-5"])
def test_models_are_served_under_the_name_that_vertex_ai_wants(model: str) -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        document = ask(server, conversation(), model)

    assert document["model"] == model.replace("%40", "@").replace("@", "-")


@pytest.mark.parametrize(
    ("target", "token", "status", "word"),
    [
        (path(), "wrong", 401, "UNAUTHENTICATED"),
        (path(), "", 401, "UNAUTHENTICATED"),
        (path("claude-haiku-4-5"), "test-token", 404, "NOT_FOUND"),
        (path("claude-opus-5-5@20260901"), "test-token", 404, "NOT_FOUND"),
        (path("claude-nothing"), "test-token", 404, "NOT_FOUND"),
        (path().replace("/v1/", "/v2/"), "test-token", 404, "NOT_FOUND"),
        (path().replace("rawPredict", "streamRawPredict"), "test-token", 404, "NOT_FOUND"),
    ],
)
def test_who_asks_and_where_is_checked_by_google_and_answered_in_its_shape(
    target: str, token: str, status: int, word: str
) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with ClaudeServer(lambda body, n: say("hi")) as server:
        response = requests.post(server.url + target, json=conversation(), headers=headers, timeout=10)

    assert response.status_code == status
    assert response.json()["error"]["code"] == status
    assert response.json()["error"]["status"] == word


def test_a_body_above_the_limit_is_refused_as_too_large() -> None:
    with ClaudeServer(lambda body, n: say("hi"), body_limit=100) as server:
        response = post(server, conversation())

    assert response.status_code == 413
    assert response.json()["error"]["type"] == "request_too_large"


@pytest.mark.parametrize(("version", "status"), [("2026-10-21", 200), ("2023-06-01", 404), ("", 404)])
def test_two_versions_are_served(version: str, status: int) -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        assert post(server, conversation(anthropic_version=version)).status_code == status


ERRORS: dict[str, tuple[HttpError, dict[str, Any], dict[str, str]]] = {
    "anthropic's shape": (
        HttpError(529, "Overloaded", should_retry=True, retry_after_ms="1500", retry_after="2"),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"x-should-retry": "true", "retry-after-ms": "1500", "Retry-After": "2"},
    ),
    "a stable code": (
        HttpError(429, "no", error_code="enforced_spend_limit_reached", should_retry=False),
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "no",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
        },
        {"x-should-retry": "false"},
    ),
    "a word of one's own": (
        HttpError(500, "no", "some_error"),
        {"type": "error", "error": {"type": "some_error", "message": "no"}},
        {},
    ),
    "google's shape": (
        HttpError(429, "Quota exceeded", retry_delay="3s", google=True),
        {
            "error": {
                "code": 429,
                "message": "Quota exceeded",
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}],
            }
        },
        {},
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_in_the_shape_of_who_makes_them(case: str) -> None:
    error, expected, headers = ERRORS[case]
    with ClaudeServer(lambda body, n: error) as server:
        response = post(server, conversation())

    document = response.json()
    assert ("request_id" in document) is not error.google
    document.pop("request_id", None)
    assert (response.status_code, document) == (error.code, expected)
    for name in ("x-should-retry", "retry-after-ms", "Retry-After"):
        assert response.headers.get(name) == headers.get(name)


def test_an_error_can_come_in_a_list_and_a_body_can_be_garbage() -> None:
    replies: list[Reply] = [HttpError(500, "no", in_list=True), Body(b"{", cut=True)]
    with ClaudeServer(lambda body, n: replies[n]) as server:
        assert post(server, conversation()).json()[0]["error"]["type"] == "api_error"
        with pytest.raises(requests.RequestException):
            post(server, conversation())


def person(token_uri: str) -> Any:
    return google.oauth2.credentials.Credentials(  # type: ignore[no-untyped-call]
        None, refresh_token="r", token_uri=token_uri, client_id="i", client_secret="s"
    )


def service_account(token_uri: str) -> Any:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {"client_email": "a@example.org", "private_key": pem, "token_uri": token_uri}
    return google.oauth2.service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
        account, scopes=["s"]
    )


@pytest.mark.parametrize("kind", [person, service_account])
def test_google_auth_gets_its_token_from_the_server_and_a_new_one_when_it_changed(kind: Callable[[str], Any]) -> None:
    tokens = []
    with ClaudeServer(lambda body, n: say("hi"), bearer_token="first") as server:
        credentials = kind(f"{server.url}/token")
        for token in ("first", "second"):
            server.bearer_token = token
            with requests.Session() as session:
                credentials.refresh(google.auth.transport.requests.Request(session))
            tokens.append(credentials.token)
            headers = {"Authorization": f"Bearer {credentials.token}", **SEARCHES}
            answer = requests.post(server.url + path(), json=conversation(), headers=headers, timeout=10)
            assert answer.status_code == 200

    assert tokens == ["first", "second"]


def test_a_token_is_given_for_the_two_grants_of_google_auth_only() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        grants = ["refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer", "password"]
        given = [requests.post(f"{server.url}/token", data={"grant_type": grant}, timeout=5) for grant in grants]

    assert [answer.status_code for answer in given] == [200, 200, 400]
    assert given[0].json() == {"access_token": "test-token", "expires_in": 3599, "token_type": "Bearer"}
