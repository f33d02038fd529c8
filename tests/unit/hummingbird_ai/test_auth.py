from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.oauth2.credentials import Credentials

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import AuthFailed, CallAborted, TransportFailed
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import VertexEndpoint


class TokenService:
    """Google's token endpoint on loopback: numbered tokens, or the answer it is told to give."""

    def __init__(self) -> None:
        self.given = 0
        self.failure: tuple[int, dict[str, Any]] | None = None
        self.before_answer: Callable[[], object] = lambda: None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                status, document = service.answer()
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(ConnectionError):  # a client that was aborted has gone away
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"

    def answer(self) -> tuple[int, dict[str, Any]]:
        self.before_answer()
        if self.failure is not None:
            return self.failure
        self.given += 1
        return 200, {"access_token": f"token-{self.given}", "expires_in": 3600, "token_type": "Bearer"}


@pytest.fixture
def tokens() -> Iterator[TokenService]:
    service = TokenService()
    thread = threading.Thread(target=service.server.serve_forever, args=(0.02,))
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


@pytest.fixture
def credentials_file(tokens: TokenService, private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Application Default Credentials: a service account whose token service is on loopback."""
    path = tmp_path / "account.json"
    account = {
        "type": "service_account",
        "project_id": "project-of-the-credentials",
        "private_key_id": "1",
        "private_key": private_key,
        "client_email": "agent@example.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": tokens.url,
    }
    path.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    for name in ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "GOOGLE_API_USE_CLIENT_CERTIFICATE"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.mark.usefixtures("credentials_file")
def test_the_project_is_the_explicit_one_then_the_environments_then_the_credentials() -> None:
    environment = {"GOOGLE_CLOUD_PROJECT": "of-the-environment"}

    assert VertexAuth("explicit", environment=environment).project == "explicit"
    assert VertexAuth(environment=environment).project == "of-the-environment"
    assert VertexAuth(environment={}).project == "project-of-the-credentials"


@pytest.mark.usefixtures("credentials_file")
def test_the_environment_of_the_process_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "real-environment")

    assert VertexAuth().project == "real-environment"


@pytest.mark.usefixtures("credentials_file")
def test_a_token_is_fetched_once_and_renewed_on_demand(tokens: TokenService) -> None:
    auth = VertexAuth("p")

    assert auth.headers() == {"Authorization": "Bearer token-1"}
    assert auth.headers() == {"Authorization": "Bearer token-1"}
    assert auth.headers(renew=True) == {"Authorization": "Bearer token-2"}
    assert tokens.given == 2
    assert "token" not in repr(auth)


@pytest.mark.usefixtures("credentials_file")
def test_many_threads_share_one_token(tokens: TokenService) -> None:
    auth = VertexAuth("p")
    threads = [threading.Thread(target=auth.headers) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert tokens.given == 1


@pytest.mark.usefixtures("credentials_file")
def test_a_token_that_many_conversations_were_refused_is_renewed_once(tokens: TokenService) -> None:
    auth = VertexAuth("p")
    endpoints = [VertexEndpoint(auth, "global") for _ in range(5)]
    for renew in (False, True):
        given = [endpoint.headers(renew=renew)["Authorization"] for endpoint in endpoints]

    assert set(given) == {"Bearer token-2"}
    assert tokens.given == 2


@pytest.mark.usefixtures("credentials_file")
def test_a_refused_account_is_an_auth_failure_without_its_key(tokens: TokenService, private_key: str) -> None:
    tokens.failure = (400, {"error": "invalid_grant", "error_description": "account disabled"})

    with pytest.raises(AuthFailed, match="invalid_grant") as caught:
        VertexAuth("p").headers()
    assert private_key[60:90] not in str(caught.value)


def test_a_token_service_that_repeats_what_it_was_given_does_not_bring_it_into_the_message(
    tokens: TokenService,
) -> None:
    given = {"refresh_token": "refresh-secret", "client_secret": "client-secret", "client_id": "1"}
    tokens.failure = (400, {"error": "invalid_grant", "error_description": "no: refresh-secret, client-secret"})
    credentials = Credentials(None, token_uri=tokens.url, **given)  # type: ignore[no-untyped-call]
    auth = VertexAuth("p", credentials=credentials)

    with pytest.raises(AuthFailed, match=r"no: \[redacted\], \[redacted\]") as caught:
        auth.headers()
    assert "-secret" not in f"{caught.value!r}"
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("credentials_file")
def test_an_abort_ends_the_wait_for_a_token_that_another_thread_fetches(tokens: TokenService) -> None:
    abort, go_on = Abort(), threading.Event()
    auth = VertexAuth("p")

    def abort_the_second_and_stall() -> None:
        abort.set("Cancelled")
        go_on.wait(30)

    tokens.before_answer = abort_the_second_and_stall
    first = threading.Thread(target=auth.headers)
    first.start()
    assert abort.wait(30)
    try:
        with pytest.raises(CallAborted, match="Cancelled"):
            auth.headers(abort=abort)
    finally:
        go_on.set()
        first.join()
    assert auth.headers() == {"Authorization": "Bearer token-1"}


@pytest.mark.usefixtures("credentials_file")
def test_an_abort_also_ends_the_call_of_a_conversation_whose_project_the_credentials_name(
    tokens: TokenService,
) -> None:
    abort, fetching, go_on = Abort(), threading.Event(), threading.Event()
    auth = VertexAuth(environment={})
    waited: list[bool] = []

    def stall() -> None:
        fetching.set()
        waited.append(go_on.wait(10))

    tokens.before_answer = stall
    first = threading.Thread(target=auth.headers)
    first.start()
    assert fetching.wait(30)
    assert auth.project == "project-of-the-credentials"
    endpoint = VertexEndpoint(auth, "global", "http://localhost:1")
    model = GeminiModel("gemini-3.8-flash", endpoint)
    threading.Timer(0.1, abort.set, ["Cancelled"]).start()
    with pytest.raises(CallAborted, match="Cancelled"):
        model.generate([model.make_user_content("go")], system="s", tools=[], abort=abort)
    go_on.set()
    first.join()
    assert waited == [True]
    assert "projects/project-of-the-credentials/" in endpoint.url("m")


def test_a_bundle_of_authorities_that_is_not_there_is_a_transport_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    given = {"refresh_token": "refresh-secret", "client_secret": "client-secret", "client_id": "1"}
    away = Credentials(None, token_uri="https://localhost:1/token", **given)  # type: ignore[no-untyped-call]

    with pytest.raises(TransportFailed, match=r"nowhere\.pem"):
        VertexAuth("p", credentials=away).headers()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"type": "service_account"}', '{"type": "unheard_of"}'])
def test_a_credentials_file_of_another_shape_is_an_auth_failure(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "account.json"
    path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))

    with pytest.raises(AuthFailed, match="Google credentials: ") as caught:
        VertexAuth("p").headers()
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("credentials_file")
def test_a_token_service_that_is_away_is_a_transport_failure(tokens: TokenService) -> None:
    tokens.server.server_close()

    with pytest.raises(TransportFailed, match="Google credentials"):
        VertexAuth("p").headers()


@pytest.mark.usefixtures("credentials_file")
def test_an_abort_ends_the_wait_for_a_token(tokens: TokenService) -> None:
    abort = Abort()

    def cancel_and_stall() -> None:
        abort.set("Cancelled")
        time.sleep(3)

    tokens.before_answer = cancel_and_stall
    model = GeminiModel("gemini-3.8-flash", VertexEndpoint(VertexAuth("p"), "global", "http://localhost:1"))
    started = time.monotonic()

    with pytest.raises(CallAborted, match="Cancelled"):
        model.generate([model.make_user_content("go")], system="s", tools=[], abort=abort)
    assert time.monotonic() - started < 2


def test_missing_credentials_are_an_auth_failure_that_says_what_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))

    with pytest.raises(AuthFailed, match="Vertex AI User"):
        VertexAuth("p").headers()


def test_credentials_without_a_project_say_that_none_was_found() -> None:
    class Anonymous:
        valid, token = True, "t"

    with pytest.raises(AuthFailed, match="no Google Cloud project"):
        _ = VertexAuth(environment={}, credentials=Anonymous()).project


def test_a_key_file_that_was_replaced_is_read_when_the_old_key_is_not_taken_any_more(
    credentials_file: Path, tokens: TokenService
) -> None:
    """A process lives longer than a key."""
    auth = VertexAuth("p", environment={})
    assert auth.headers() == {"Authorization": "Bearer token-1"}
    refused = (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
    tokens.failure = refused
    asked: list[int] = []

    def replaced() -> None:
        asked.append(1)
        if len(asked) == 2:
            tokens.failure = None

    tokens.before_answer = replaced
    assert auth.headers(renew=True) == {"Authorization": "Bearer token-2"}

    tokens.failure, tokens.before_answer = refused, lambda: None
    with pytest.raises(AuthFailed, match="Invalid JWT Signature"):
        auth.headers(renew=True)
    given = VertexAuth("p", credentials=auth._credentials, environment={})
    with pytest.raises(AuthFailed, match="Invalid JWT Signature"):
        given.headers(renew=True)


def test_credentials_that_are_given_may_name_the_project() -> None:
    class Named:
        project_id = "of-the-credentials"

    assert VertexAuth(credentials=Named(), environment={}).project == "of-the-credentials"
