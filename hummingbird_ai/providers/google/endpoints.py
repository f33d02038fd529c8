"""Where Google's models are served and how a call proves who makes it: an API key, or Vertex AI with credentials."""

from __future__ import annotations

import re
from collections import deque
from typing import Protocol
from urllib.parse import quote

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import AuthFailed, BadRequest

_REGION = re.compile(r"[a-z]+(-[a-z]+)+\d+")


class Endpoint(Protocol):
    """One route to a Gemini model. `secrets` must not appear in any message."""

    transport: str
    region: str
    takes_labels: bool
    shows_searches: bool
    """The provider's own tool calls come as parts of the answer, which has to be asked for and sent back."""
    renewable: bool

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings to remove from whatever the other side sends back."""
        ...

    def url(self, model: str) -> str:
        """The address of `generateContent` for a model."""
        ...

    def headers(self, *, renew: bool = False, abort: Abort | None = None) -> dict[str, str]:
        """The headers that authorise a call."""
        ...


class ApiKeyEndpoint:
    """The Gemini API. The key travels in a header only: a query string ends up in logs and exceptions."""

    transport = "gemini-api"
    region = "global"
    takes_labels = False
    shows_searches = True
    renewable = False

    def __init__(self, api_key: str, base_url: str | None = None) -> None:
        self._key = api_key.strip()
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise AuthFailed("the Google API key has characters that no key has")
        self._base = (base_url or "https://generativelanguage.googleapis.com").rstrip("/")

    def __repr__(self) -> str:
        return f"ApiKeyEndpoint({self._base!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key."""
        return (self._key,)

    def url(self, model: str) -> str:
        """`v1` is what Google's own SDK calls today."""
        return f"{self._base}/v1/models/{_segment('model', model)}:generateContent"

    def headers(self, *, renew: bool = False, abort: Abort | None = None) -> dict[str, str]:
        """The key's header; a key cannot be renewed."""
        return {"x-goog-api-key": self._key}


class VertexEndpoint:
    """Vertex AI in one region: `global`, the multi-regions `us` and `eu`, or a single region such as `us-central1`."""

    transport = "vertex"
    takes_labels = True
    shows_searches = False
    renewable = True

    def __init__(self, auth: VertexAuth, region: str, base_url: str | None = None) -> None:
        self.region = region
        self._auth = auth
        host = vertex_host(region)
        self._base = (base_url or f"https://{host}").rstrip("/")
        self._tokens: deque[str] = deque(maxlen=2)

    def __repr__(self) -> str:
        return f"VertexEndpoint({self._base!r}, region={self.region!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The tokens of the latest calls: a proxy's error page may show the headers it was given."""
        return tuple(self._tokens)

    def url(self, model: str, *, publisher: str = "google", method: str = "generateContent") -> str:
        """The publisher model's address; the project is looked up at the first call."""
        project, region = _segment("project", self._auth.project), _segment("region", self.region)
        place = f"projects/{project}/locations/{region}/publishers/{_segment('publisher', publisher)}"
        return f"{self._base}/v1/{place}/models/{_segment('model', model)}:{method}"

    def headers(self, *, renew: bool = False, abort: Abort | None = None) -> dict[str, str]:
        """A bearer token; a wait for somebody else's look-up of it ends with `abort`."""
        latest = self._tokens[-1] if self._tokens else ""
        given = self._auth.headers(renew=renew, refused=latest, abort=abort)
        self._tokens.append(given["Authorization"].removeprefix("Bearer "))
        return given


def vertex_host(region: str) -> str:
    """The host that serves a region; BadRequest for what is none."""
    if region == "global":
        return "aiplatform.googleapis.com"
    if region in ("us", "eu"):
        return f"aiplatform.{region}.rep.googleapis.com"
    if not _REGION.fullmatch(region):
        raise BadRequest(f"the region is {region!r}: it must be `global`, `us`, `eu` or one such as `us-central1`")
    return f"{_segment('region', region)}-aiplatform.googleapis.com"


def _segment(what: str, value: str) -> str:
    if not value or value in (".", ".."):
        raise BadRequest(f"the {what} is {value!r}")
    return quote(value, safe="")
