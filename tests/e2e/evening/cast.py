"""Who and what there is on the evening: people with their roles, projects, workflows with their rules, and phrases.

What a phrase means is written beside it, by hand: nothing here is computed by the product's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from demo.stage import BOT_TOKEN, MODEL_KEY

BOT, STRANGER, GUEST, FORKER = "hummingbird-bot", "mallory", "gina", "frank"
HOOKS_TOKEN = "maintainer-token"
TOKEN_SECRET = "a-plain-token-of-the-evening"
SIGNING_SECRET = "whsec_c2lnbmluZy1zZWNyZXQtb2YtdGhlLWV2ZW5pbmc="

NUMBERS = {
    BOT: 1,
    "alice": 7,
    STRANGER: 8,
    "maya": 9,
    "bob": 11,
    GUEST: 12,
    FORKER: 13,
    "renovate-bot": 14,
    "ci-runner": 15,
}
LEVELS = {BOT: 30, "alice": 30, "maya": 40, "bob": 30, GUEST: 10, "renovate-bot": 30, "ci-runner": 30}
"""The same in every project; who is not here is no member."""
MEMBERS = ("alice", "bob", "maya")
ALLOWED_BOT = "ci-runner"
"""`allowed_bots`: it may ask like a person; nobody answers the other one, though it is a Developer."""
IGNORED_BOT = "renovate-bot"
DEVELOPER = 30

APP, VAULT, SITE, SECRET = "group/app", "group/vault", "team/site", "other/secret"
IDS = {APP: 10, VAULT: 11, SITE: 12, SECRET: 90}
LIMITS = {APP: 4, VAULT: 5, SITE: 3}
"""`max_runs_per_mr`; a project that is not here is not in the allow list."""
INTERNAL = frozenset({VAULT})
"""Projects whose notes are internal."""
BY_HOOK_ONLY = frozenset({SITE})
"""Its events reach nobody by the queue: what a dead ingestor missed must come from GitLab's list of deliveries."""
HOOK_FLAGS = ("merge_requests_events", "note_events", "confidential_note_events", "pipeline_events", "push_events")

FAILURES, LICENSES, REVIEW, TRIAGE = "analyze-failures", "analyze-licenses", "review", "triage"

Answer = Literal["nothing", "run", "help", "unknown"]


@dataclass(frozen=True)
class Means:
    """What a comment of a Developer asks for."""

    answer: Answer
    workflow: str = ""


NOTHING, HELP, UNKNOWN = Means("nothing"), Means("help"), Means("unknown")


def starts(workflow: str) -> Means:
    """The workflow is run."""
    return Means("run", workflow)


COMMANDS: tuple[tuple[str, Means, Means], ...] = (
    ("/hummingbird review please {q}", starts(REVIEW), UNKNOWN),
    ("/hummingbird analyze-failures why only arm64? {q}", starts(FAILURES), starts(FAILURES)),
    ("/hummingbird analyze-f\n\nwhat about {q}", starts(FAILURES), starts(FAILURES)),
    ("/hummingbird analyze {q}", UNKNOWN, UNKNOWN),
    ("/hummingbird triage\r\n{q}", UNKNOWN, starts(TRIAGE)),
    ("/hummingbird tri {q}", UNKNOWN, starts(TRIAGE)),
    ("/hummingbird help", HELP, HELP),
    ("/hummingbird help me {q}", HELP, HELP),
    ("/hummingbird", HELP, HELP),
    ("\n  \n/hummingbird rev look at {q}", starts(REVIEW), UNKNOWN),
    ("/hummingbird\treview {q}", starts(REVIEW), UNKNOWN),
    ("/hummingbird Review {q}", UNKNOWN, UNKNOWN),
    ("/hummingbird analyze-licenses", starts(LICENSES), starts(LICENSES)),
    ("/hummingbird review", starts(REVIEW), UNKNOWN),
)
"""The text, what it means in `group/*`, and in `team/*`."""
BYSTANDERS = (
    " /hummingbird review {q}",
    "> /hummingbird review {q}",
    "please /hummingbird review {q}",
    "/hummingbirdreview {q}",
    "```\n/hummingbird review {q}\n```",
    "@hummingbird-bot review {q}",
    "LGTM {q}",
    'see {q}\n\n<!-- hummingbird: {"id": "00000000-0000-4000-8000-000000000000", "wf": "review", "state": "done"} -->',
)
"""Texts that ask for nothing."""


def meaning(project: str, number: int) -> Means:
    """What the command of that number means in the project."""
    _, in_group, in_team = COMMANDS[number]
    return in_group if project.startswith("group/") else in_team


def fixture(hooks: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """GitLab at the beginning, with the hooks of each project."""
    tokens = {BOT: {BOT_TOKEN: ["api"]}, "maya": {HOOKS_TOKEN: ["api"]}}
    users = [
        {"id": number, "username": name, "tokens": tokens.get(name, {}), "bot": name.endswith(("-bot", "-runner"))}
        for name, number in NUMBERS.items()
    ]
    projects = [
        {
            "id": number,
            "path": path,
            "visibility": "public",
            "members": {str(NUMBERS[name]): level for name, level in LEVELS.items()},
            "hooks": hooks.get(path, []),
        }
        for path, number in IDS.items()
    ]
    # a hook's pause after failures is none: what GitLab never sends is in no list, and nobody could know of it
    return {"users": users, "projects": projects, "notes_per_minute": 10_000, "hook_backoff_seconds": 0}


def configuration(gitlab: str, model: str, folder: str, sandboxes: str, ingest: dict[str, Any]) -> dict[str, Any]:
    """config.yaml."""
    prompt = {FAILURES: "workflows/analyze-failures.md", REVIEW: "workflows/review.md"}
    return {
        "gitlab": {
            "url": gitlab,
            "token_env": "GITLAB_TOKEN",
            "allowed_bots": [ALLOWED_BOT],
            "hooks_token_env": "HOOKS_TOKEN",
            "webhook_secret_env": ["HOOK_TOKEN", "HOOK_SIGNING"],
        },
        "models": {"default": "gemini-3.8-flash", "google_api_key_env": "GOOGLE_API_KEY", "endpoint": model},
        "sessions": {"store": f"file://{folder}/store"},
        "sandbox": {"pool": "default", "namespace": sandboxes},
        "limits": {
            "retry_seconds": 30,
            "max_attempts": 1000,
            "max_concurrent_runs": 8,
            "max_requests_per_hour": 1000,  # which of too many are refused would depend on their order
        },
        "ingest": ingest,
        "projects": {
            path: {"max_runs_per_mr": limit, "internal_notes": path in INTERNAL} for path, limit in LIMITS.items()
        },
        "workflows": {
            FAILURES: {"prompt": prompt[FAILURES], "action": "pipeline", "trigger_rules": FAILURES_RULES},
            REVIEW: {
                "prompt": prompt[REVIEW],
                "action": "merge_request",
                "projects": ["group/*"],
                "trigger_rules": REVIEW_RULES,
            },
            LICENSES: {"prompt": prompt[FAILURES]},
            TRIAGE: {"prompt": prompt[FAILURES], "projects": ["team/*"]},
        },
    }


FAILURES_RULES = [
    {"action": "deny", "branch": "renovate/*"},
    {"action": "deny", "status": "*", "user": "ci-*"},
    {"action": "allow", "status": "failed"},
    {"action": "allow", "status": "canceled", "fork": False},
]
REVIEW_RULES = [
    {"action": "deny", "branch": "renovate/*"},
    {"action": "deny", "title": "chore*"},
    {"action": "allow"},
]


def environment() -> dict[str, str]:
    """Secrets of all processes."""
    return {
        "GITLAB_TOKEN": BOT_TOKEN,
        "GOOGLE_API_KEY": MODEL_KEY,
        "HOOKS_TOKEN": HOOKS_TOKEN,
        "HOOK_TOKEN": TOKEN_SECRET,
        "HOOK_SIGNING": SIGNING_SECRET,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
