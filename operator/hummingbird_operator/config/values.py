"""Kinds of values in the file, and the sentence with an example for one that is wrong."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from hummingbird_operator.problems import env_name, secret_path

HOOK_PATH = "/webhooks/gitlab"
"""Where `ingest webhook` takes events."""
SERVED_BACKENDS = ("k8spool", "k8s")
"""Kinds of sandbox that this version has; the others are known and refused by name."""

_ADDRESS = r"https?://[^/\s]+(/[^\s]*)?"


def _form(expression: str, sentence: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(expression, value):
            raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": sentence})
        return value

    return AfterValidator(check)


def address(example: str) -> AfterValidator:
    """The rule of an address of a service, with one that would be right."""
    return _form(_ADDRESS, f"must be an address such as {example}")


def _no_api(url: str) -> str:
    if "/api/v4" in url:
        raise ValueError(f"is the address of the API; give that of GitLab itself: {url.partition('/api/v4')[0]}")
    return url


def _hook_path(url: str) -> str:
    if not url.endswith(HOOK_PATH):
        raise ValueError(f"must end with {HOOK_PATH}: nothing is taken at another path")
    return url


def _no_address(project: str) -> str:
    if "://" in project or project.startswith(("/", "git@")) or project.endswith((".git", "/")):
        raise ValueError("must be a path such as group/app, or a glob such as group/*, and no address")
    return project


def _backend(value: object) -> object:
    if value not in get_args(Backend):
        names = ", ".join(SERVED_BACKENDS)
        raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": f"must be one of {names}"})
    return value


def _no_at(user: str) -> str:
    if user.startswith("@"):
        raise ValueError(f"must be a user name without @, which no name has: {user[1:]}")
    return user


Positive = Annotated[int, Field(gt=0)]
Money = Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=4)]
EnvName = Annotated[str, BeforeValidator(env_name)]
SecretFile = Annotated[Path, BeforeValidator(secret_path)]
HttpUrl = Annotated[str, address("https://service.example.com")]
GitLabUrl = Annotated[str, address("https://gitlab.example.com"), AfterValidator(_no_api)]
QueueUrl = Annotated[str, address("https://sqs.eu-central-1.amazonaws.com/123456789012/events")]
HookUrl = Annotated[str, address(f"https://hummingbird.example.com{HOOK_PATH}"), AfterValidator(_hook_path)]
StoreUrl = Annotated[
    str, _form(r"s3://[^/\s]+(/[^\s]*)?|file:///[^\s]*", "must be such as s3://bucket/prefix or file:///path")
]
PromptPath = Annotated[str, _form(r"[^\s].*\.md", "must be a Markdown file such as workflows/review.md")]
WorkflowName = Annotated[
    str,
    _form(
        r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
        "must be a name such as review or analyze-failures: at most 40 lower-case letters, digits and hyphens",
    ),
]
UserGlob = Annotated[str, AfterValidator(_no_at)]
ProjectGlob = Annotated[str, AfterValidator(_no_address)]
Backend = Literal["podman", "k8s", "k8spool", "kubevirt", "kubevirtpool"]
BackendName = Annotated[Backend, BeforeValidator(_backend)]
