from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import AuthFailed, BadRequest, CallAborted, RequestTooLarge
from hummingbird_ai.messages import Content, ModelAdapter, ToolCall, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import MAX_REQUEST_BYTES, GeminiModel
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, VertexEndpoint, vertex_host
from hummingbird_ai.testing import Answer, GeminiServer, Stall, call, say

RUN = ToolDef("run", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}}, notes="n")
READ = ToolDef("read", "Read a file", {"type": "object", "properties": {"path": {"type": "string"}}})


class Credentials:
    """Google credentials in the shape google-auth gives them, with a token that may be stale."""

    def __init__(self, token: str = "test-token", after_refresh: str = "test-token") -> None:  # noqa: S107
        self.valid, self.token, self.refreshed = True, token, 0
        self._next = after_refresh

    def refresh(self, request: object) -> None:
        self.refreshed += 1
        self.token = self._next


def by_key(server: GeminiServer, name: str = "gemini-3.8-flash") -> ModelAdapter:
    return build_model(name, google_api_key=server.api_key, base_url=server.url)


def by_vertex(
    server: GeminiServer, region: str = "global", credentials: Credentials | None = None, **more: Any
) -> GeminiModel:
    auth = VertexAuth("my project", credentials=credentials or Credentials())
    return GeminiModel("gemini-3.8-flash", VertexEndpoint(auth, region, server.url), **more)


def ask(model: ModelAdapter, contents: list[Content] | None = None, **more: Any) -> Any:
    given = [model.make_user_content("hello")] if contents is None else contents
    return model.generate(given, **{"system": "be brief", "tools": [RUN, READ], **more})


def test_the_whole_request_in_geminis_form() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        ask(by_key(server), max_output_tokens=100)
        received = server.calls[0]

    assert received.path == "/v1/models/gemini-3.8-flash:generateContent"
    assert received.body == {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "run", "description": "Run a command", "parametersJsonSchema": RUN.parameters},
                    {"name": "read", "description": "Read a file", "parametersJsonSchema": READ.parameters},
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 100},
    }


def test_the_key_travels_in_its_header_only_and_the_server_is_told_the_time_limit() -> None:
    with GeminiServer(lambda body, n: say("hi"), api_key="very-secret") as server:
        model = build_model("gemini-3.8-flash", google_api_key=" very-secret\n", base_url=server.url)
        ask(model)
        received = server.calls[0]

    assert received.headers["x-goog-api-key"] == "very-secret"
    assert received.headers["x-server-timeout"] == "600"
    assert "very-secret" not in received.path + received.raw.decode()
    assert "very-secret" not in repr(model)


def test_a_key_with_impossible_characters_is_refused_without_showing_it() -> None:
    with pytest.raises(AuthFailed) as caught:
        ApiKeyEndpoint("very\nsecret")
    assert "secret" not in str(caught.value)


def test_parallel_results_go_into_one_user_content_in_the_order_of_the_calls() -> None:
    """Reports 1, 2, 4: separate user messages, or a wrong number of parts, are refused by the server."""
    answers = [Answer(calls=(("run", {"command": "ls"}), ("read", {"path": "a"}))), say("done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_key(server)
        contents = [model.make_user_content("go")]
        response = ask(model, contents)
        results: list[dict[str, Any]] = [{"exit_code": 0}, {"error": "no such file"}]
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, results)]

        assert ask(model, contents).text == "done"
        assert server.calls[1].body["contents"][2] == {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call-0-0", "name": "run", "response": {"exit_code": 0}}},
                {"functionResponse": {"id": "call-0-1", "name": "read", "response": {"error": "no such file"}}},
            ],
        }


def test_every_call_needs_its_result() -> None:
    """Report 3: one answer to two calls breaks the conversation for good."""
    model = build_model("gemini-3.8-flash", google_api_key="k")

    with pytest.raises(ValueError, match="2 calls but 1 results"):
        model.make_tool_responses([ToolCall("a", "run", {}), ToolCall("b", "run", {})], [{}])


def test_the_model_content_stays_whole_with_its_only_signature() -> None:
    """Report 6: parallel calls share the signature of the first."""
    answers = [Answer(calls=(("run", {}), ("run", {}))), say("done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_key(server)
        contents = [model.make_user_content("go")]
        response = ask(model, contents)
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, [{}, {}])]
        ask(model, contents)

        parts = server.calls[1].body["contents"][1]["parts"]
    assert ["thoughtSignature" in part for part in parts] == [True, False]


@pytest.mark.parametrize("with_ids", [True, False])
def test_an_id_is_echoed_if_it_was_given_and_never_invented_for_the_provider(with_ids: bool) -> None:
    """Report 7: without its id, Gemini 3 on Vertex AI answers nothing; 2.5 knows no ids."""
    answers = [Answer(calls=(("run", {}), ("run", {})), call_ids=with_ids), say("done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_vertex(server)
        contents = [model.make_user_content("go")]
        response = ask(model, contents)
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, [{}, {}])]

        assert ask(model, contents).text == "done"
        sent = server.calls[1].body["contents"]
    assert len({one.id for one in response.tool_calls}) == 2
    assert all(("id" in part["functionCall"]) is with_ids for part in sent[1]["parts"])
    assert all(("id" in part["functionResponse"]) is with_ids for part in sent[2]["parts"])


@pytest.mark.parametrize(
    "result",
    [
        {"schema": {"properties": {"a": {"$ref": "#/$defs/A"}}}},
        {"list": [{"deep": [{"$ref": "#"}]}], "exit_code": 0},
        {"$ref": "#/x", "more": 1},
        {"stdout": {"$defs": {}}},
    ],
)
def test_a_result_with_json_references_travels_as_text(result: dict[str, Any]) -> None:
    """Report 12: Gemini 3 follows `$ref` in a result and answers 400."""
    answers = [call("run"), say("done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_key(server)
        contents = [model.make_user_content("go")]
        response = ask(model, contents)
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, [result])]

        assert ask(model, contents).text == "done"
        assert "$" in server.calls[1].raw.decode()  # nothing is lost, it only travels as a string


def test_warnings_stand_in_a_user_content_of_their_own_at_the_end_and_are_not_kept() -> None:
    answers = [call("run"), say("done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_key(server)
        contents = [model.make_user_content("go")]
        response = ask(model, contents)
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, [{}])]
        before = copy.deepcopy(contents)
        ask(model, contents, ephemeral=["two turns left", " ", "be quick"])

        sent = server.calls[1].body["contents"]
    assert contents == before
    assert len(sent) == 4
    assert sent[3] == {"role": "user", "parts": [{"text": "two turns left"}, {"text": "be quick"}]}


def test_tools_are_forbidden_without_a_change_to_their_declarations() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = by_key(server)
        ask(model)
        ask(model, allow_tools=False)
        first, second = (received.body for received in server.calls)

    assert second["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert first["tools"] == second["tools"]


def test_no_tools_means_no_tool_fields_and_a_blank_system_prompt_is_left_out() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        ask(by_key(server), tools=[], allow_tools=False, system=" ")

        assert server.calls[0].body.keys() == {"contents", "generationConfig"}


def test_blank_text_is_not_sent_whoever_wrote_it() -> None:
    """Reports 13 and 15: blank text in the history makes every later call fail."""
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = by_key(server)
        blank: list[Content] = [
            model.make_user_content("  "),
            {"role": "user", "parts": [{"text": ""}, {"text": "real"}]},
            {"role": "model", "parts": [{"text": "\n"}]},
            {"role": "model", "parts": [{"text": "", "thoughtSignature": "c2ln"}, {"text": "yes"}]},
            model.make_user_content("next"),
        ]
        ask(model, blank)

        assert [content["parts"] for content in server.calls[0].body["contents"]] == [
            [{"text": "real"}],
            [{"text": "", "thoughtSignature": "c2ln"}, {"text": "yes"}],
            [{"text": "next"}],
        ]


def test_a_model_turn_that_no_user_turn_follows_is_followed_by_a_word() -> None:
    """A nudge is not kept, so the history may hold two model turns in a row; a call after the first is refused."""
    answers = [Answer(text="cut", finish="MAX_TOKENS"), call("run"), say("done"), say("again")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_key(server)
        contents = [model.make_user_content("go")]
        contents.append(ask(model, contents).raw_content)
        called = ask(model, contents, ephemeral=["call a tool"])
        contents += [called.raw_content, model.make_tool_responses(called.tool_calls, [{}])]
        contents.append(ask(model, contents).raw_content)

        assert ask(model, contents).text == "again"
        sent = [content["role"] for content in server.calls[3].body["contents"]]
    assert sent == ["user", "model", "user", "model", "user", "model", "user"]


def test_a_conversation_without_any_text_is_refused_before_it_is_sent() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = by_key(server)
        with pytest.raises(BadRequest, match="no text"):
            ask(model, [model.make_user_content("")])
        assert not server.calls


def test_a_request_that_is_larger_than_gemini_takes_is_not_sent() -> None:
    """Report 18."""
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = by_key(server)
        with pytest.raises(RequestTooLarge, match=r"has 20,97\d,\d{3} bytes, the provider takes 20,971,520"):
            ask(model, [model.make_user_content("x" * MAX_REQUEST_BYTES)])
        assert not server.calls


def test_lone_surrogates_in_any_place_are_mended() -> None:
    """Report 17."""
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = by_key(server)
        tool = ToolDef("run", "a\ud800", {"type": "object", "properties": {"b\udc00": {"type": "string"}}})
        ask(
            model,
            [{"role": "user", "parts": [{"text": "c\ud83d"}]}],
            system="d\udfff",
            tools=[tool],
            ephemeral=["\ud800"],
        )

        assert server.calls[0].raw.decode().count("\ufffd") == 5


texts = st.text(st.characters(exclude_categories=()), max_size=20)
results = st.dictionaries(texts, texts | st.floats() | st.integers(), max_size=3)


@given(texts, results, st.booleans())
def test_equal_input_gives_equal_bytes_and_changes_nothing_it_was_given(
    text: str, result: dict[str, Any], allow_tools: bool
) -> None:
    model = GeminiModel("gemini-3.8-flash", ApiKeyEndpoint("k"))
    one = ToolCall("id-1", "run", {})
    contents = [
        model.make_user_content(f"go {text}"),
        {"role": "model", "parts": [{"functionCall": {"id": "id-1", "name": "run", "args": result}}]},
        model.make_tool_responses([one], [result]),
    ]
    before = repr(contents)

    def request() -> dict[str, Any]:
        return model._request(contents, text, [RUN], [text], allow_tools, 10)

    assert repr(request()) == repr(request())
    assert repr(contents) == before


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-central1", "us-central1-aiplatform.googleapis.com"),
    ],
)
def test_every_kind_of_region_has_its_host_and_path(region: str, host: str) -> None:
    endpoint = VertexEndpoint(VertexAuth("my project"), region)

    assert vertex_host(region) == host
    assert endpoint.url("gemini-3.8-flash") == (
        f"https://{host}/v1/projects/my%20project/locations/{region}/publishers/google/models/"
        "gemini-3.8-flash:generateContent"
    )


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_an_empty_or_dotted_path_segment_is_refused(part: str) -> None:
    with pytest.raises(BadRequest, match="the model is"):
        ApiKeyEndpoint("k").url(part)
    with pytest.raises(BadRequest, match="the region is"):
        VertexEndpoint(VertexAuth("p"), part, "http://x").url("gemini-3.8-flash")


def test_the_path_segments_cannot_be_left() -> None:
    assert ApiKeyEndpoint("k").url("../secrets?x#y").endswith("/models/..%2Fsecrets%3Fx%23y:generateContent")


def test_vertex_calls_carry_a_bearer_token_and_labels() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        ask(by_vertex(server, "us-central1", labels={"team": "a"}))
        received = server.calls[0]

    assert received.path.startswith("/v1/projects/my%20project/locations/us-central1/publishers/google/models/")
    assert received.headers["authorization"] == "Bearer test-token"
    assert received.body["labels"] == {"team": "a"}


def test_labels_are_not_sent_to_the_gemini_api() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url, labels={"team": "a"})
        ask(model)

        assert "labels" not in server.calls[0].body


def test_a_refused_token_is_renewed_once() -> None:
    stale = Credentials("stale", after_refresh="test-token")
    with GeminiServer(lambda body, n: say("hi")) as server:
        assert ask(by_vertex(server, credentials=stale)).text == "hi"
        assert stale.refreshed == 1

        hopeless = Credentials("stale", after_refresh="stale")
        with pytest.raises(AuthFailed, match="401"):
            ask(by_vertex(server, credentials=hopeless))
    assert hopeless.refreshed == 1
    assert [received.refused is not None for received in server.calls] == [True, False, True, True]


def test_an_abort_during_a_stalled_answer_ends_the_call() -> None:
    abort = Abort()

    def script(body: dict[str, Any], n: int) -> Stall:
        abort.set("Cancelled")
        return Stall()

    with GeminiServer(script) as server, pytest.raises(CallAborted, match="Cancelled"):
        ask(by_key(server), abort=abort)
