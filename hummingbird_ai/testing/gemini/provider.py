"""Gemini's side of a provider server: both routes to `generateContent`, and who may ask."""

from __future__ import annotations

import re
from typing import Any

from hummingbird_ai.testing.errors import google_error
from hummingbird_ai.testing.gemini.answers import BYTES_PER_TOKEN, PrefixCache, render
from hummingbird_ai.testing.gemini.rules import refusal
from hummingbird_ai.testing.received import Request
from hummingbird_ai.testing.replies import Answer, HttpError

_KEY_PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):generateContent")
_VERTEX_PATH = re.compile(
    r"/v1(?:beta1)?/projects/[^/]+/locations/[^/]+/publishers/google/models/([^/:]+):generateContent"
)


class Gemini:
    """The Gemini API and Gemini on Vertex AI; `context_window` tokens (four bytes each) fit into a prompt."""

    name = "google"

    def __init__(self, api_key: str, bearer_token: str, context_window: int) -> None:
        self.api_key = api_key
        self.bearer_token = bearer_token
        self._window = context_window
        self._cache = PrefixCache()

    def model(self, path: str) -> str:
        """The model a path names, "" if the path is not served."""
        match = _KEY_PATH.fullmatch(path) or _VERTEX_PATH.fullmatch(path)
        return match.group(1) if match else ""

    def refusal(self, request: Request) -> HttpError | None:
        """Why Gemini does not take this request, None if it does."""
        if not request.model.startswith("gemini-"):
            named = request.model or request.path
            return HttpError(404, f"models/{named} is not found, or not supported for generateContent.")
        problem = self._unauthorised(request)
        if problem is None and request.unreadable:
            problem = HttpError(400, f"Invalid JSON payload received. {request.unreadable}")
        if problem is None:
            problem = refusal(request.body, model=request.model, vertex=_is_vertex(request))
        tokens = len(request.raw) // BYTES_PER_TOKEN
        if problem is None and tokens > self._window:
            limit = f"exceeds the maximum number of tokens allowed ({self._window})"
            problem = HttpError(400, f"The input token count ({tokens}) {limit}.")
        return problem

    def render(self, answer: Answer, request: Request, number: int) -> Any:
        """The document of a 200."""
        return render(
            answer,
            request.body,
            model=request.model,
            vertex=_is_vertex(request),
            number=number,
            cache=self._cache,
        )

    def render_error(self, error: HttpError) -> Any:
        """Google's shape, always."""
        return google_error(error)

    def _unauthorised(self, request: Request) -> HttpError | None:
        if _is_vertex(request):
            if request.headers.get("authorization") == f"Bearer {self.bearer_token}":
                return None
            return HttpError(401, "Request had invalid authentication credentials.", reason="ACCESS_TOKEN_TYPE")
        key = request.headers.get("x-goog-api-key")
        if key is None:
            return HttpError(403, "Method doesn't allow unregistered callers (no x-goog-api-key header).")
        if key != self.api_key:
            return HttpError(400, "API key not valid. Please pass a valid API key.", reason="API_KEY_INVALID")
        return None


def _is_vertex(request: Request) -> bool:
    return "/projects/" in request.path
