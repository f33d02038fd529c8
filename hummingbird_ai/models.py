"""The front door: the types, the prices, and `build_model`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import BadRequest, ModelError
from hummingbird_ai.messages import (
    Content,
    Finish,
    ModelAdapter,
    ModelResponse,
    Source,
    ToolCall,
    ToolDef,
    Usage,
)
from hummingbird_ai.pricing import (
    MODEL_PRICING,
    Prices,
    context_window,
    estimate_cost,
    has_price,
    parse_prices,
    worst_case_cost,
)
from hummingbird_ai.providers.claude.adapter import AnthropicVertexModel
from hummingbird_ai.providers.claude.traits import needs_release
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, Endpoint, VertexEndpoint

__all__ = [
    "MODEL_PRICING",
    "AnthropicVertexModel",
    "Content",
    "Finish",
    "GeminiModel",
    "ModelAdapter",
    "ModelError",
    "ModelResponse",
    "Source",
    "ToolCall",
    "ToolDef",
    "Usage",
    "VertexAuth",
    "build_model",
    "context_window",
    "estimate_cost",
    "has_price",
    "worst_case_cost",
]

_NAME = re.compile(r"(gemini|claude)-[A-Za-z0-9._-]+(@[A-Za-z0-9]+)?")
DEFAULT_REGION = "global"
"""The region of Vertex AI that serves every current model, with the most capacity."""


def build_model(
    name: str,
    *,
    google_api_key: str = "",
    google_cloud_project: str = "",
    model_regions: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    web_search: bool = False,
    prices: Prices | None = None,
    base_url: str | None = None,
    auth: VertexAuth | None = None,
) -> ModelAdapter:
    """An adapter for one conversation; nothing is looked up or called before its first `generate`.

    With a key, Gemini is reached by the Gemini API, else by Vertex AI in the region of the longest prefix of
    `model_regions` that the name begins with (`global` without one). Claude is always called on Vertex AI. `labels` go
    to Vertex AI only. `web_search` lets the provider search the web by itself: its queries leave with what the model
    puts into them. `prices` add to or override the shipped ones, `base_url` replaces scheme and host. Adapters that are
    given one `auth` (in the place of `google_cloud_project`) share its token. Raises BadRequest for a model that this
    version cannot call, ValueError for prices that cannot be read.
    """
    parsed: Mapping[str, Any] = parse_prices(prices or {})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequest(f"{name!r} is not a model this version can call: a name begins with `gemini-` or `claude-`")
    if not isinstance(model_regions or {}, Mapping):
        raise BadRequest('model_regions maps the beginnings of names to regions, such as {"claude-": "eu"}')
    region = region_of(name, model_regions or {})
    vertex = VertexEndpoint(auth or VertexAuth(google_cloud_project), region, base_url)
    if name.startswith("claude-"):
        if needs_release(name):
            raise BadRequest(f"{name}: Vertex AI knows it by its release only, as in claude-haiku-4-5@20251001")
        return AnthropicVertexModel(name, vertex, labels=labels, web_search=web_search, prices=parsed)
    endpoint: Endpoint = ApiKeyEndpoint(google_api_key, base_url) if (google_api_key or "").strip() else vertex
    return GeminiModel(name, endpoint, labels=labels, web_search=web_search, prices=parsed)


def region_of(name: str, model_regions: Mapping[str, str]) -> str:
    """The region of the longest prefix that fits, DEFAULT_REGION if none does."""
    fitting = [prefix for prefix in model_regions if name.startswith(prefix)]
    return model_regions[max(fitting, key=len)] if fitting else DEFAULT_REGION
