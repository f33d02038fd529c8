"""Claude's side of a provider server: the path, who may ask, and one request after the other."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.claude.answers import content_of, search_id, stop_reason, usage_of
from hummingbird_ai.testing.claude.blocks import Conversation, owed_searches, read
from hummingbird_ai.testing.claude.cache import PromptCache, prompt_tokens, rendered
from hummingbird_ai.testing.claude.models import MODELS, Traits, find_model
from hummingbird_ai.testing.claude.rules import BETAS, VERSIONS, parameter_problems
from hummingbird_ai.testing.claude.shapes import shape_problem
from hummingbird_ai.testing.claude.thinking import judge
from hummingbird_ai.testing.claude.turns import order_problems
from hummingbird_ai.testing.errors import anthropic_error
from hummingbird_ai.testing.received import Request
from hummingbird_ai.testing.replies import Answer, HttpError, Search

_PATH = re.compile(r".*/v1/projects/[^/]+/locations/[^/]+/publishers/anthropic/models/([^/:]+):rawPredict")
_KNOWN_BLOCKS = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "web_search_tool_result",
    }
)


class Claude:
    """Claude on Vertex AI; the prompt cache and what it has asked for live as long as the server."""

    name = "anthropic"

    def __init__(self, bearer_token: str, context_window: int | None, body_limit: int) -> None:
        self.bearer_token = bearer_token
        self._window = context_window
        self._body_limit = body_limit
        self._cache = PromptCache()
        self._lock = threading.Lock()
        self._paused: set[bytes] = set()
        self._searches: dict[str, Search] = {}
        self._novel: set[bytes] = set()

    def model(self, path: str) -> str:
        """The model a path names, "" if the path is not served."""
        match = _PATH.fullmatch(path)
        return unquote(match.group(1)) if match else ""

    def refusal(self, request: Request) -> HttpError | None:
        """Why Claude, or Google before it, does not take this request; None if it is taken."""
        if request.headers.get("authorization") != f"Bearer {self.bearer_token}":
            return HttpError(
                401, "Request had invalid authentication credentials.", reason="ACCESS_TOKEN_TYPE", google=True
            )
        traits = find_model(request.model)
        if traits is None:
            named = f"Publisher Model `{request.path.partition('/v1/')[2].partition(':')[0] or request.path}`"
            return HttpError(404, f"{named} was not found or your project does not have access to it.", google=True)
        if len(request.raw) > self._body_limit:
            return HttpError(413, "Request exceeds the maximum size")
        if request.unreadable:
            return HttpError(400, f"The request body is not valid JSON: {request.unreadable}")
        version = request.body.get("anthropic_version")
        if version is not None and version not in VERSIONS:
            return HttpError(404, f"anthropic_version: {version} is not served")
        problem = next(self._problems(request, traits), "")
        return HttpError(400, problem) if problem else None

    def _problems(self, request: Request, traits: Traits) -> Iterator[str]:
        listed = request.headers.get("anthropic-beta", "").split(",")
        betas = frozenset(name.strip() for name in listed) - {""}
        for name in sorted(betas - BETAS):
            yield f"Unexpected value(s) `{name}` for the `anthropic-beta` header."
        shape = shape_problem(self._without_novel(request.body), betas)
        if shape:
            yield shape
            return
        asked, name = read(request.body), request.model.partition("@")[0]
        yield from order_problems(asked, traits, paused=self._is_paused(asked))
        yield from parameter_problems(asked, name, traits)
        verdict = judge(asked, name, traits)
        if verdict.problem:
            yield verdict.problem
        window = self._window or traits.context_window
        tokens = prompt_tokens(rendered(asked, traits, verdict.dropped))
        if tokens > window:
            yield f"prompt is too long: {tokens} tokens > {window} maximum"

    def render(self, answer: Answer, request: Request, number: int) -> Any:
        """The document of a 200."""
        asked, name = read(request.body), request.model.partition("@")[0]
        if answer.searches and not asked.lists_web_search:
            raise ValueError("the answer has searches, and the request does not declare web_search")
        traits = MODELS[name]
        verdict = judge(asked, name, traits)
        display = asked.thinking.get("display")
        shown = traits.shows_thinking if display is None else display == "summarized"
        ids = [search_id(verdict.prefix.name, index) for index in range(len(answer.searches))]
        content = content_of(answer, verdict.prefix, model=name, shown=shown, owed=self._owed(asked))
        stop = stop_reason(answer, content)
        if request.body["max_tokens"] == 0:
            content, stop = [], "max_tokens"
        counted = self._cache.count(asked, request.model, traits, request.at, verdict.dropped)
        self._remember(zip(ids, answer.searches, strict=True), content, stop)
        document = {
            "id": f"msg_vrtx_{number}",
            "type": "message",
            "role": "assistant",
            "model": answer.model_version or request.model.replace("@", "-"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "stop_details": answer.stop_details,
            "usage": usage_of(answer, content, counted),
        }
        if verdict.dropped:
            what = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
            document["input_transformations"] = [{**what, "path": path} for path in verdict.dropped]
        return document

    def render_error(self, error: HttpError) -> Any:
        """Anthropic's shape, or Google's where the error says so."""
        return anthropic_error(error)

    def _owed(self, asked: Conversation) -> list[tuple[str, Search]]:
        with self._lock:
            return [(owed, self._searches.get(owed, Search(""))) for owed in owed_searches(asked.messages)]

    def _is_paused(self, asked: Conversation) -> bool:
        last = asked.messages[-1].blocks if asked.messages else ()
        if not last:
            return False
        with self._lock:
            return (
                last[-1].type in ("server_tool_use", "web_search_tool_result") or encode(last[-1].data) in self._paused
            )

    def _remember(
        self, searches: Iterable[tuple[str, Search]], content: list[dict[str, Any]], stop: str | None
    ) -> None:
        """What later requests may refer to: a pause, searches under way, and blocks of types yet unknown."""
        with self._lock:
            if stop == "pause_turn" and content:
                self._paused.add(encode(content[-1]))
            self._searches |= dict(searches)
            self._novel |= {encode(block) for block in content if block.get("type") not in _KNOWN_BLOCKS}

    def _without_novel(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without blocks of unknown types that this server has made itself: it knows them again."""
        with self._lock:
            if not self._novel or not isinstance(body.get("messages"), list):
                return body
            return {**body, "messages": [self._known(message) for message in body["messages"]]}

    def _known(self, message: Any) -> Any:
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            return message
        return {**message, "content": [item for item in message["content"] if encode(item) not in self._novel]}
