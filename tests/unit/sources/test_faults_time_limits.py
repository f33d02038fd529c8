"""python-gitlab has no time limit of its own (S3 of docs/faults.md): the session that everything goes over has one."""

from __future__ import annotations

from typing import Any

import requests

from hummingbird_operator.forges.gitlab import TIMEOUT, OneHostSession


class Recording(requests.adapters.HTTPAdapter):
    """Answers nothing and remembers how long anybody would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[Any] = []

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        self.limits.append(kwargs["timeout"])
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 204, request, request.url or ""
        return answer


def test_no_request_waits_for_ever_whatever_its_caller_asks_for() -> None:
    adapter, session = Recording(), OneHostSession("https://gitlab.example.com", "token")
    session.mount("https://", adapter)
    for asked in ({}, {"timeout": None}, {"timeout": 10_000}):
        session.request("GET", "https://gitlab.example.com/api/v4/user", **asked)
    assert adapter.limits == [TIMEOUT] * 3
    assert max(TIMEOUT) <= 60
    session.close()
