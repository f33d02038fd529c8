"""The few HTTP values that the handlers exchange with the server, and GitLab's way of paging."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.standins.gitlab.records import Token, User

DEFAULT_PAGE = 20
MAXIMUM_PAGE = 100


class ApiError(Exception):
    """A refusal: its status and the JSON body that GitLab sends with it."""

    def __init__(self, status: int, payload: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {payload}")
        self.status = status
        self.payload = payload


def not_found(what: str = "") -> ApiError:
    """404 in GitLab's words; an empty `what` gives the general form."""
    return ApiError(404, {"message": f"404 {what} Not Found".replace("  ", " ") if what else "404 Not found"})


@dataclass(frozen=True)
class Request:
    """One authenticated call under /api/v4: path segments are unquoted, the query keeps its last value per name."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    user: User
    token: Token
    base: str
    path: str


@dataclass
class Response:
    """An answer: `body` is bytes, or an iterator of bytes whose total is `length` (None: chunked)."""

    status: int = 200
    body: bytes | Iterator[bytes] = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    later: Callable[[], Response] | None = None
    """What answers in its place, outside of the state's lock: for what waits for somebody else."""


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(status, json.dumps(value).encode(), headers=headers or {})


def positive(request: Request, name: str, default: int) -> int:
    """A whole number of the query, at least 1: GitLab answers 400 to anything else."""
    try:
        value = int(request.query.get(name, default))
    except ValueError:
        raise ApiError(400, {"error": f"{name} is invalid"}) from None
    return max(1, value)


def page_of(request: Request, rows: Sequence[Any], count_limit: int) -> tuple[Sequence[Any], dict[str, str]]:
    """Cut one page out of `rows` with GitLab's headers; totals are left out above `count_limit` rows."""
    per_page = min(positive(request, "per_page", DEFAULT_PAGE), MAXIMUM_PAGE)
    page = positive(request, "page", 1)
    start = (page - 1) * per_page
    more = start + per_page < len(rows)
    query = {key: value for key, value in request.query.items() if key not in {"page", "per_page"}}

    def link(number: int, rel: str) -> str:
        return (
            f'<{request.base}{request.path}?{urlencode({**query, "page": number, "per_page": per_page})}>; rel="{rel}"'
        )

    links = [link(page + 1, "next")] if more else []
    headers = {"X-Page": str(page), "X-Per-Page": str(per_page), "X-Next-Page": str(page + 1) if more else ""}
    if len(rows) <= count_limit:
        pages = max(1, -(-len(rows) // per_page))
        headers |= {"X-Total": str(len(rows)), "X-Total-Pages": str(pages)}
        links.append(link(pages, "last"))
    headers["Link"] = ", ".join([*links, link(1, "first")])
    return rows[start : start + per_page], headers


def paged(request: Request, rows: Sequence[Any], count_limit: int) -> Response:
    """One page as a JSON answer."""
    page, headers = page_of(request, rows, count_limit)
    return as_json(list(page), headers=headers)


def flag(value: object) -> bool:
    """A boolean as Grape coerces it from JSON or a query."""
    return value in (True, "true", "True", "1", 1)
