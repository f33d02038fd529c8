"""Names, keys and bodies of the AgentRuns that events make."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import MESSAGE_BYTES, MESSAGE_CHARACTERS, AgentRun, Notice, cut_message
from hummingbird_operator.ingest import runs
from hummingbird_operator.ingest.payloads import BadPayload
from hummingbird_operator.ingest.runs import Comment, Origin
from tests.unit.ingest.samples import SESSION, SHA, THREAD

HOST = "gitlab.example.com"
ORIGIN = Origin(HOST, "pipeline", "group/app", 10, 42, "alice", 7, "https://gitlab.example.com/p/31")
COMMENT = Comment(replace(ORIGIN, event="note", url=""), 1244, THREAD, internal=False)


CRD = Path(__file__).parents[3] / "crds" / "agentruns.yaml"
VERSION = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"] | {"additionalProperties": False}
jsonschema.Draft202012Validator.check_schema(SCHEMA)
OF_THE_CRD = jsonschema.Draft202012Validator(SCHEMA)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def test_an_automatic_run_is_named_after_its_workflow_and_the_hash_of_its_key() -> None:
    run = runs.automatic(ORIGIN, "analyze-failures", SHA, 31, "failed", "2026-11-30 10:05:00 UTC")
    key = f"gitlab:{HOST}:10:pipeline:31:failed:2026-11-30 10:05:00 UTC:analyze-failures"
    assert run == {
        "apiVersion": "hummingbird-project.io/v1alpha1",
        "kind": "AgentRun",
        "metadata": {
            "name": f"analyze-failures-{digest(key)}",
            "labels": {
                labels.WORKFLOW: "analyze-failures",
                labels.LANE: labels.lane_of("group/app!42", "analyze-failures"),
            },
            "annotations": {labels.CONTENT_KEY: key},
        },
        "spec": {
            "workflow": "analyze-failures",
            "target": {"gitlab": {"project": "group/app", "mergeRequest": 42, "sha": SHA}},
            "trigger": {
                "source": "gitlab",
                "event": "pipeline",
                "key": key,
                "author": "alice",
                "authorId": 7,
                "url": "https://gitlab.example.com/p/31",
                "automatic": True,
            },
            "ttlSecondsAfterFinished": 1_296_000,
        },
    }


def test_a_command_is_named_after_its_note_alone_and_names_no_commit() -> None:
    run = runs.command(COMMENT, "review", "only arm64")
    key = f"gitlab:{HOST}:10:note:1244"
    assert run["metadata"]["name"] == f"note-{digest(key)}"
    assert run["metadata"]["annotations"] == {labels.CONTENT_KEY: key}
    assert labels.SESSION not in run["metadata"]["labels"]
    assert run["spec"]["target"] == {"gitlab": {"project": "group/app", "mergeRequest": 42}}
    assert run["spec"]["message"] == "only arm64"
    assert run["spec"]["trigger"] == {
        "source": "gitlab",
        "event": "note",
        "key": key,
        "author": "alice",
        "authorId": 7,
        "automatic": False,
        "internal": False,
        "discussion": THREAD,
        "noteId": 1244,
    }
    assert "message" not in runs.command(COMMENT, "review", "")["spec"]


def test_a_reply_names_its_session_in_spec_and_label() -> None:
    run = runs.reply(COMMENT, "review", SESSION, "why?")
    assert (run["spec"]["session"], run["metadata"]["labels"][labels.SESSION]) == (SESSION, SESSION)
    assert run["metadata"]["name"] == runs.command(COMMENT, "other", "")["metadata"]["name"]


def test_a_notice_has_no_session_and_its_word_is_cut() -> None:
    run = runs.notice(COMMENT, Notice.UNKNOWN_COMMAND, "x" * 9_000)
    spec = run["spec"]
    assert (spec["workflow"], spec["notice"], spec["message"]) == ("help", "UnknownCommand", "x" * 200)
    assert "session" not in spec
    assert run["metadata"]["name"] == runs.command(COMMENT, "review", "")["metadata"]["name"]


def test_that_the_queue_is_full_is_said_beside_the_reply() -> None:
    assert (
        runs.notice(COMMENT, Notice.QUEUE_FULL)["metadata"]["name"]
        != runs.reply(COMMENT, "review", SESSION, "")["metadata"]["name"]
    )


@pytest.mark.parametrize(
    ("given_text", "taken"),
    [
        ("a\r\nb\rc\nd\te", "a\nb\nc\nd\te"),
        ("NUL \x00 ESC \x1b[31m DEL \x7f NEL \x85", "NUL \ufffd ESC \ufffd[31m DEL \ufffd NEL \ufffd"),
        ("\ud800 \uffff \ufffe", "\ufffd \ufffd \ufffd"),
        ("ä 😀 \u202e", "ä 😀 \u202e"),
    ],
)
def test_control_characters_are_replaced(given_text: str, taken: str) -> None:
    assert runs.text(given_text) == taken


@pytest.mark.parametrize("words", ["x" * 1_000_000, "😀" * 1_000_000, "\r\n" * 500_000])
def test_a_message_is_bounded_and_the_operator_still_sees_that_it_was_cut(words: str) -> None:
    message = runs.command(COMMENT, "review", words)["spec"]["message"]
    assert len(message) == MESSAGE_CHARACTERS
    assert len(message.encode()) > MESSAGE_BYTES
    assert cut_message(message)[1]


@pytest.mark.parametrize(
    "url", ["", "javascript:alert(1)", "https://a b", "https://a/\x00", "https://a/" + "x" * 3_000]
)
def test_an_address_that_the_api_would_refuse_is_left_out(url: str) -> None:
    assert "url" not in runs.command(replace(COMMENT, origin=replace(ORIGIN, url=url)), "review", "")["spec"]["trigger"]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"project": "group app"}, "spec.target.gitlab.project"),
        ({"iid": 0}, "spec.target.gitlab.mergeRequest"),
        ({"author_id": 0}, "spec.trigger.authorId"),
    ],
)
def test_what_the_api_server_would_refuse_is_a_bad_payload_with_its_field(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(BadPayload) as caught:
        runs.automatic(replace(ORIGIN, **changes), "review", SHA, 1)
    assert caught.value.where == where


def test_names_fit_with_the_longest_workflow() -> None:
    run = runs.automatic(ORIGIN, "w" * 40, SHA, 1)
    assert len(run["metadata"]["name"]) == 57


@given(st.text(), st.text(max_size=300), st.text(max_size=100))
def test_any_words_make_a_run_that_the_models_and_the_crd_take(words: str, author: str, url: str) -> None:
    comment = replace(COMMENT, origin=replace(ORIGIN, author=author, url=url))
    word = runs.notice(comment, Notice.UNKNOWN_COMMAND, words)
    for run in (runs.command(comment, "review", words), runs.reply(comment, "review", SESSION, words), word):
        AgentRun.parse(run)
        OF_THE_CRD.validate(run["spec"])
