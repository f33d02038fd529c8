"""The tests' own door, `/_standin/`, for a stand-in that runs as a command: state, events, faults, people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tests.standins.gitlab.events import Emitted
from tests.standins.gitlab.faults import Fault
from tests.standins.gitlab.people import NothingWritten, People
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Response, as_json


class Owner(Protocol):
    """What is steered."""

    state: State
    people: People
    faults: list[Fault]

    @property
    def events(self) -> list[Emitted]:
        """Every event so far."""


def answer(owner: Owner, method: str, word: str, body: Mapping[str, Any]) -> Response:
    """GET state or events; POST load, faults or people (a `verb` with its `arguments`); DELETE faults or calls."""
    match (method, word):
        case ("POST", "people"):
            return _act(owner.people, str(body["verb"]), body.get("arguments", {}))
        case ("GET", "events"):
            return as_json([vars(event) for event in owner.events])
    with owner.state.lock:
        match (method, word):
            case ("GET", "state"):
                return as_json(owner.state.dump())
            case ("POST", "load"):
                owner.state.load(body)
                return as_json({"loaded": True})
            case ("POST", "faults"):
                owner.faults.append(Fault.from_json(body))
                return as_json({"faults": len(owner.faults)})
            case ("DELETE", "faults"):
                owner.faults.clear()
                return as_json({"faults": 0})
            case ("DELETE", "calls"):
                owner.state.calls.clear()
                return as_json({"calls": 0})
    return as_json({"error": f"no such control call: {method} {word}"}, 404)


def _act(people: People, verb: str, arguments: Mapping[str, Any]) -> Response:
    """Do it in their name; the answer has the id of a note or a pipeline, if one came of it."""
    if verb.startswith("_") or not hasattr(people, verb):
        return as_json({"error": f"people do not know {verb}"}, 404)
    try:
        done = getattr(people, verb)(**arguments)
    except ApiError as refusal:
        return as_json(refusal.payload, refusal.status)
    except NothingWritten:
        return as_json({"id": None}, 202)
    found = {"discussion_id": done.discussion_id} if hasattr(done, "discussion_id") else {}
    return as_json({"id": done if isinstance(done, int) else getattr(done, "id", None), **found})
