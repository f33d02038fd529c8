"""What `check` says of a configuration that the schema allows: what can never work, and what was hardly meant."""

from __future__ import annotations

import base64
import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator import checking
from hummingbird_operator.config import globs
from hummingbird_operator.settings import Settings, load

HOOK = "https://hummingbird.example.com/webhooks/gitlab"
SIGNING = "whsec_" + base64.b64encode(b"k" * 32).decode()


def settings(folder: Path, environ: dict[str, str] | None = None, **changes: Any) -> Settings:
    """The smallest configuration with a GitLab, of which nothing is said, and changes; None takes a section away."""
    whole = {
        "gitlab": {"url": "https://gitlab.example.com", "token_env": "BOT"},
        "models": {"default": "gemini-3.8-flash", "google_api_key_env": "KEY"},
        "sessions": {"store": "s3://bucket"},
        "projects": {"group/app": {"tokens": {"gitlab": "READ"}}},
        "workflows": {"look": {"prompt": "look.md"}},
        **changes,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in whole.items() if value is not None}))
    return load(path, environ or {})


def rules(action: str, *given: dict[str, Any]) -> dict[str, Any]:
    return {"workflows": {"look": {"prompt": "look.md", "action": action, "trigger_rules": list(given)}}}


def gitlab(**more: object) -> dict[str, Any]:
    return {"gitlab": {"url": "https://gitlab.example.com", "token_env": "BOT", **more}}


ALLOW: dict[str, Any] = {"action": "allow"}
DENY: dict[str, Any] = {"action": "deny"}
FORKS: dict[str, Any] = {"action": "deny", "fork": True}
WHERE = "workflows.look.trigger_rules"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (rules("pipeline"), f"{WHERE}: no rule allows anything"),
        (rules("pipeline", FORKS), f"{WHERE}: no rule allows anything, so nothing starts it; end the list with {{act"),
        (rules("merge_request", ALLOW, FORKS), f"{WHERE}[1]: is never reached, for [0] decides whatever it fits"),
        (rules("merge_request", {**ALLOW, "user": "re*"}, {**DENY, "user": "renovate"}, ALLOW), f"{WHERE}[1]: is nev"),
        (rules("pipeline", {**ALLOW, "status": "*"}, {**ALLOW, "status": "failed"}), f"{WHERE}[1]: is never reached"),
        (
            rules("pipeline", {**ALLOW, "status": "failure"}),
            "failure is no status that a pipeline ends with (canceled, failed, skipped, success); did you mean failed?",
        ),
        (rules("pipeline", {**ALLOW, "status": "running"}), f"{WHERE}[0].status: running is no status that"),
        (rules("merge_request", {**ALLOW, "status": "failed"}), f"{WHERE}: every rule that allows names a status"),
        (rules("manual", ALLOW), f"{WHERE}: nothing starts the workflow by itself"),
        (rules("merge_request", {**ALLOW, "branch": "^release/.*$"}), f"{WHERE}[0].branch: ^release/.*$ looks like a"),
        (rules("merge_request", {**ALLOW, "branch": "(fix|feat)/x"}), f"{WHERE}[0].branch: (fix|feat)/x looks like a"),
        (rules("merge_request", {**ALLOW, "title": "Draft.*"}), f"{WHERE}[0].title: Draft.* looks like a regular"),
        ({"workflows": {"look": {"prompt": "l.md", "projects": ["grp/*"]}}}, "workflows.look.projects: no entry of pr"),
        ({"workflows": {"look": {"prompt": "l.md", "projects": ["grp/*"]}}}, "projects.group/app: no workflow is for"),
        ({"projects": {"Group/*": {}}, "workflows": {"a": {"prompt": "l.md", "projects": ["group/a"]}}}, "case differ"),
        ({"projects": None}, "projects: names no project"),
        ({"gitlab": None}, "gitlab: is absent, so projects can do nothing"),
        ({"gitlab": None, "projects": None, "ingest": {"webhook_url": HOOK}}, "gitlab: is absent, so ingest can do"),
        (
            {"gitlab": None, "projects": None, "workflows": {"a": {"prompt": "l.md", "data_sources": {"gitlab": {}}}}},
            "gitlab: is absent, so workflows.a.data_sources.gitlab can do nothing",
        ),
        (
            rules("merge_request", {**DENY, "branch": "re*"}, {**ALLOW, "branch": "release/*"}, ALLOW),
            f"{WHERE}[1]: is never reached",
        ),
        ({"projects": {"group/.*": {}}}, "projects.group/.*: group/.* looks like a regular expression"),
        ({"projects": {"*": {}, "group/*": {"max_runs_per_mr": 1}}}, "projects.group/*: never counts, for * stands"),
        (
            {"projects": {"*/app": {}, "group/*": {"internal_notes": True}}},
            "projects.group/*: internal_notes do not count where */app, which stands first, fits too",
        ),
        ({"ingest": {"webhook_url": HOOK}}, "gitlab.webhook_secret_env: names no secret, so nothing is taken"),
        ({"ingest": {"webhook_url": HOOK.replace("https", "http")}}, "ingest.webhook_url: WITHOUT TLS anybody"),
        (
            {"limits": {"max_iterations": 5}, "workflows": {"look": {"prompt": "l.md", "max_iterations": 9}}},
            "workflows.look.max_iterations: 9 counts as 5, limits.max_iterations",
        ),
        ({"sandbox": {"namespace": "hummingbird"}}, "sandbox.namespace: hummingbird is that of the runs, unless"),
        ({"models": {"default": "gemini-x", "regions": {"gemni-": "eu"}}}, "models.regions.gemni-: no model's name"),
        (gitlab(webhook_secret_env=["ONE", "ONE"]), "gitlab.webhook_secret_env: ONE stands twice"),
        (
            {"ingest": {"queue_url": "http://queue.internal/1/events"}},
            "ingest.sqs_region: the queue's address names no",
        ),
    ],
)
def test_what_can_never_do_what_it_was_written_for_is_a_warning(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    found = checking.warnings(settings(tmp_path, **changes))
    assert any(said in sentence for sentence in found), found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gitlab": None, "projects": None},
        rules("merge_request", FORKS, ALLOW),
        rules("merge_request", {**DENY, "user": "renovate*"}, {**DENY, "title": "chore(deps): *"}, ALLOW),
        rules("merge_request", {**ALLOW, "branch": "release-1.*"}, {**ALLOW, "branch": "v1.x.*"}),
        rules("merge_request", {**ALLOW, "status": "failed"}, ALLOW),
        rules("pipeline", ALLOW, {**ALLOW, "status": "canceled"}),
        rules("pipeline", {**ALLOW, "branch": "main"}, {**DENY, "branch": "ma*"}, ALLOW),
        {"workflows": {"look": {"prompt": "look.md", "projects": ["*/app", "gr[no]up/app"]}}},
        gitlab(webhook_secret_env=["ONE", "TWO"]),
        {"ingest": {"queue_url": "https://sqs.eu-central-1.amazonaws.com/123456789012/events"}},
        {"ingest": {"queue_url": "http://queue.internal/1/events", "sqs_region": "eu-central-1"}},
    ],
)
def test_what_makes_sense_is_no_warning(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert checking.warnings(settings(tmp_path, **changes)) == []


def test_a_region_that_the_process_is_given_is_no_warning(tmp_path: Path) -> None:
    ingest = {"queue_url": "http://queue.internal/1/events"}
    assert checking.warnings(settings(tmp_path, {"AWS_DEFAULT_REGION": "eu-central-1"}, ingest=ingest)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": {"default": "gpt-9"}}, "models.default: 'gpt-9' is not a model"),
        ({"workflows": {"look": {"prompt": "l.md", "model": "gpt-9"}}}, "workflows.look.model: 'gpt-9' is not a model"),
        (
            {"ingest": {"webhook_url": HOOK.replace("//", "//me:word@")}},
            "ingest.webhook_url: must hold no name and no password",
        ),
        (
            {"projects": {"group/app": {}}, "workflows": {"a": {"prompt": "l.md", "data_sources": {"gitlab": {}}}}},
            "projects.group/app.tokens: workflow a reads GitLab, and nothing names a read token: give {gitlab: NAME}",
        ),
        ({"sandbox": {"namespace": "runs"}}, "sandbox.namespace: runs is the namespace of the runs; sandboxes need"),
        (gitlab(webhook_secret_env=["GOOD", "HALF"]), "gitlab.webhook_secret_env (HALF): begins with whsec_ and is no"),
    ],
)
def test_what_nothing_works_with_is_a_fault_and_no_secret_is_shown(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    environ = {"GOOD": SIGNING, "HALF": "whsec_%%%", "HUMMINGBIRD_NAMESPACE": "runs"}
    [fault] = checking.faults(settings(tmp_path, environ, **changes))
    assert said in fault
    assert "%%%" not in fault
    assert "The same request fails again" not in fault, "words for a call that was made"


@pytest.mark.parametrize(
    "changes",
    [
        {"projects": {"group/app": {}, "group/lib": {"tokens": {"gitlab": "READ"}}}},
        {"projects": {"group/*": {}, "group/lib": {"tokens": {"gitlab": "READ"}}}},
        {"workflows": {"a": {"data_sources": {"gitlab": {"token_env": "READ"}}}}, "projects": {"group/app": {}}},
    ],
)
def test_reading_with_a_token_from_either_place_is_no_fault(tmp_path: Path, changes: dict[str, Any]) -> None:
    reads = {"prompt": "l.md", "data_sources": {"gitlab": {}}, "projects": ["group/lib"]}
    workflows = {"a": {**reads, **changes.get("workflows", {}).get("a", {})}}
    assert checking.faults(settings(tmp_path, **{**changes, "workflows": workflows})) == []


@pytest.mark.parametrize(
    ("process", "named"),
    [
        ("operator", {"BOT", "KEY", "READ"}),
        ("ingest-webhook", {"BOT", "HOOKS", "HOOK"}),
        ("ingest-sqs", {"BOT"}),
        (None, {"BOT", "KEY", "READ", "HOOKS", "HOOK"}),
    ],
)
def test_each_process_is_asked_for_its_own_secrets(
    tmp_path: Path, process: checking.Process | None, named: set[str]
) -> None:
    changes = gitlab(hooks_token_env="HOOKS", webhook_secret_env=["HOOK"])
    found = checking.missing(settings(tmp_path, **changes), process)
    assert {sentence.split("the environment variable ")[1].split()[0] for sentence in found} == named


PIECES = st.text("ab/*?", max_size=6)


@st.composite
def fitting(draw: st.DrawFn, path: str) -> str:
    """A glob that fits the path: some of its characters kept, some unnamed, a star for some or before them."""
    return "".join(draw(st.sampled_from([char, "?", "*", f"*{char}"])) for char in path)


@given(st.data(), st.text("ab/", max_size=8))
def test_globs_that_share_a_path_overlap(data: st.DataObject, path: str) -> None:
    one, other = data.draw(fitting(path)), data.draw(fitting(path))
    assert fnmatch.fnmatchcase(path, one)
    assert globs.overlap(one, other)


@given(st.text("ab/", max_size=8), PIECES)
def test_a_path_overlaps_with_the_globs_that_it_fits_and_no_others(path: str, glob: str) -> None:
    assert globs.overlap(path, glob) == fnmatch.fnmatchcase(path, glob)


@given(PIECES, PIECES, st.text("abc/", max_size=8))
def test_a_glob_that_covers_another_fits_all_that_the_other_fits(one: str, other: str, path: str) -> None:
    if globs.covers(one, other) and fnmatch.fnmatchcase(path, other):
        assert fnmatch.fnmatchcase(path, one)


@given(st.data(), st.text("ab/", max_size=8))
def test_a_glob_covers_the_path_that_it_fits_and_whatever_narrows_it(data: st.DataObject, path: str) -> None:
    glob = data.draw(fitting(path))
    assert globs.covers(glob, path)
    assert globs.covers("*", glob)
    assert globs.covers(f"*{glob}", glob)


@pytest.mark.parametrize(
    ("one", "other", "covered"),
    [
        ("*", "group/*", True),
        ("group/*", "group/team/*", True),
        ("group/*", "*", False),
        ("?*", "*?", True),
        ("*?", "*", False),
        ("a?c", "a*c", False),
        ("a[bc]", "ab", True),
        ("a[bc]", "a[bc]", True),
        ("a[bc]", "a[bd]", False),
        ("a?", "a[bd]", True),
        ("**", "*", True),
    ],
)
def test_covering(one: str, other: str, covered: bool) -> None:
    assert globs.covers(one, other) == covered
