"""One HTTP exchange with a model at Google: bounded in both directions, with a token that is renewed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import requests

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import RequestTooLarge
from hummingbird_ai.http import HttpReply, cuttable, post


class Caller(Protocol):
    """Who makes the call; `renewable` says whether it can prove itself anew after a 401."""

    renewable: bool

    def headers(self, *, renew: bool = False, abort: Abort | None = None) -> dict[str, str]:
        """The headers that authorise a call."""
        ...


def exchange(
    session: requests.Session,
    caller: Caller,
    address: Callable[[], str],
    body: bytes,
    *,
    headers: Mapping[str, str],
    seconds: float,
    max_bytes: int,
    abort: Abort | None = None,
) -> HttpReply:
    """The answer of any status; `address` may have to look up the project, so it is called here, after the headers:
    by then there are credentials to look into, and nobody has to be waited for.

    `max_bytes` is what the provider takes of a request: more is RequestTooLarge before anything is sent. Else raises
    what `hummingbird_ai.http.post` and the credentials raise.
    """
    if len(body) > max_bytes:
        raise RequestTooLarge(f"the request has {len(body):,} bytes, the provider takes {max_bytes:,}")
    for renew in (False, True):
        with cuttable(abort):  # credentials may have to be fetched first
            authorisation = caller.headers(renew=renew, abort=abort)
            url = address()
        reply = post(session, url, body=body, headers={**headers, **authorisation}, seconds=seconds, abort=abort)
        if reply.status != 401 or not caller.renewable:
            break
    return reply
