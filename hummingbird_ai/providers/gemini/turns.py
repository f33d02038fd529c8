"""The order of contents that Gemini takes: turns that alternate, and every call answered in the one content after it.

What is added here follows from the history alone, so a later request adds it again in the same place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from hummingbird_ai.canonical import NO_RESULT, NO_START
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content

Part = dict[str, Any]
_OPENING: Content = {"role": "user", "parts": [{"text": NO_START}]}
_CONTINUE: Content = {"role": "user", "parts": [{"text": "Continue."}]}

_log = logging.getLogger(__name__)


def in_order(turns: Sequence[Content]) -> list[Content]:
    """The turns with what has to stand between them.

    All responses to a turn stand in one content, in the order of its calls; a call without one gets a response that
    says so, words that stood among them follow. Between two model turns (after a nudge that was not kept) stands the
    user's word, for Gemini does not go on with its own turn, and so it does before a first turn of the model. Raises
    BadRequest for a response that nothing asked for.
    """
    ordered: list[Content] = []
    asked: list[Part] = []
    for model, users in _groups(turns):
        wanted = _answered(asked, users)
        ordered += wanted
        if model is None:  # once: earlier ones were told when they were the newest
            _tell(wanted)
            continue
        if not ordered:
            ordered.append(_OPENING)
        elif ordered[-1]["role"] == "model":
            ordered.append(_CONTINUE)
        ordered.append(model)
        asked = [part["functionCall"] for part in model["parts"] if "functionCall" in part]
    if ordered[-1]["role"] == "model":
        ordered.append(_CONTINUE)
    return ordered


def _groups(turns: Sequence[Content]) -> Iterator[tuple[Content | None, list[Content]]]:
    """Each model turn with the user's turns before it; at last those behind the last one."""
    users: list[Content] = []
    for turn in turns:
        if turn["role"] == "user":
            users.append(turn)
        else:
            yield turn, users
            users = []
    yield None, users


def _answered(asked: Sequence[Part], users: Sequence[Content]) -> list[Content]:
    responses = [part for turn in users for part in turn["parts"] if "functionResponse" in part]
    if not asked and not responses:
        return list(users)
    wanted = [_response_to(call, responses) for call in asked]
    if responses:
        name = responses[0]["functionResponse"].get("name", "")
        raise BadRequest(f"there is a result of {name} that no call right before it asks for")
    words = [{**turn, "parts": [part for part in turn["parts"] if "functionResponse" not in part]} for turn in users]
    return [{"role": "user", "parts": wanted}, *(turn for turn in words if turn["parts"])]


def _response_to(call: Part, responses: list[Part]) -> Part:
    """The response that belongs to a call, by its id, or by its name where neither has one; taken out of the list."""
    for index, part in enumerate(responses):
        given = part["functionResponse"]
        if given.get("id") == call.get("id") and (call.get("id") or given.get("name") == call.get("name")):
            return responses.pop(index)
    number = {"id": call["id"]} if "id" in call else {}
    return {"functionResponse": {**number, "name": call.get("name", ""), "response": dict(NO_RESULT)}}


def _tell(answered: Sequence[Content]) -> None:
    for part in answered[0]["parts"] if answered else ():
        if part.get("functionResponse", {}).get("response") == NO_RESULT:
            _log.warning("the call of %s got no result: the model is told so", part["functionResponse"]["name"])
