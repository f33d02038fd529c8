"""What `hummingbird check` says of a configuration beyond its schema. Needs no network and starts nothing.

Faults keep a process from working; warnings are about what is allowed and does nothing, or not what was meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from hummingbird_ai import models
from hummingbird_operator.config import Config, TriggerRule, WorkflowEntry
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.route import ENDED
from hummingbird_operator.ingest.rules import FAILED
from hummingbird_operator.ingest.sqs import queue
from hummingbird_operator.ingest.webhook import signatures
from hummingbird_operator.settings import Settings

Process = Literal["operator", "ingest-webhook", "ingest-sqs"]
PROCESSES: tuple[Process, ...] = get_args(Process)
"""The processes that read the file; each has a Secret with what it needs."""

_REGULAR = re.compile(r"^\^|\$$|\\|\(.*\|.*\)|(?<![0-9xX*?\]])\.[*+]")
_GLOB = re.compile(r"[*?\[]")
_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_Named = dict[str, tuple[str | None, Path | None]]


def missing(settings: Settings, process: Process | None = None) -> list[str]:
    """A sentence for every secret that a process (None: any of them) is to have by the file, and that is not there."""
    named: _Named = {}
    if settings.config.gitlab:
        named["gitlab.token_env"] = (settings.config.gitlab.token_env, settings.config.gitlab.token_file)
    if process in (None, "operator"):
        named |= _of_operator(settings.config)
    if process in (None, "ingest-webhook"):
        named |= _of_webhook(settings.config)
    found = []
    for where, (env, file) in named.items():
        try:
            if env is not None or file is not None:
                settings.secret(where, env=env, file=file)
        except Invalid as error:
            found.append(str(error))
    return found


def _of_operator(config: Config) -> _Named:
    named: _Named = {}
    named["models.google_api_key_env"] = (config.models.google_api_key_env, config.models.google_api_key_file)
    for path, project in config.projects.items():
        named |= {f"projects.{path}.tokens.{source}": (env, None) for source, env in project.tokens.items()}
    for name, workflow in config.workflows.items():
        tokens = {source: entry.token_env for source, entry in workflow.data_sources.items() if entry.token_env}
        named |= {f"workflows.{name}.data_sources.{source}.token_env": (env, None) for source, env in tokens.items()}
    return named


def _of_webhook(config: Config) -> _Named:
    if config.gitlab is None:
        return {}
    named: _Named = {"gitlab.hooks_token_env": (config.gitlab.hooks_token_env, config.gitlab.hooks_token_file)}
    named |= {f"gitlab.webhook_secret_env ({env})": (env, None) for env in config.gitlab.webhook_secret_env}
    named |= {f"gitlab.webhook_secret_file ({file})": (None, file) for file in config.gitlab.webhook_secret_file}
    return named


def faults(settings: Settings) -> list[str]:
    """What no process can work with: models that nobody knows, and of the secrets that are there, useless ones."""
    return [*_unknown_models(settings.config), *_useless_secrets(settings)]


def _unknown_models(config: Config) -> Iterator[str]:
    asked = {"models.default": config.models.default}
    asked |= {f"workflows.{name}.model": entry.model for name, entry in config.workflows.items() if entry.model}
    for where, model in asked.items():
        try:
            models.build_model(model, model_regions=config.models.regions)
        except (models.ModelError, ValueError) as error:
            yield f"{where}: {error}"


def _useless_secrets(settings: Settings) -> Iterator[str]:
    for where, (env, file) in _of_webhook(settings.config).items():
        try:
            secret = settings.secret(where, env=env, file=file) if "webhook_secret" in where else "none"
        except Invalid:
            continue  # missing() says so
        if not signatures.usable(secret):
            yield f"{where}: begins with whsec_ and is no signing token: base64 of at least 24 bytes must follow"


def warnings(settings: Settings) -> list[str]:
    """A sentence for all that is allowed and can never do what it was written for."""
    config = settings.config
    found = [*_without_gitlab(config), *_projects(config), *_ingest(settings)]
    for name, entry in config.workflows.items():
        found += _rules(f"workflows.{name}.trigger_rules", entry)
    return found


def _without_gitlab(config: Config) -> Iterator[str]:
    if config.gitlab is not None:
        if not config.projects:
            yield "projects: names no project, so every event and every target is refused"
        return
    used = ["ingest"] if config.ingest.queue_url or config.ingest.webhook_url else []
    used += ["projects"] if config.projects else []
    used += [
        f"workflows.{name}.data_sources.gitlab" for name, w in config.workflows.items() if "gitlab" in w.data_sources
    ]
    if used:
        yield f"gitlab: is absent, so {', '.join(used)} can do nothing"


def _projects(config: Config) -> Iterator[str]:
    if not config.projects:
        return
    for name, entry in config.workflows.items():
        for glob in entry.projects:
            if not any(overlap(glob, admitted) for admitted in config.projects):
                yield f"workflows.{name}.projects: no entry of projects fits {glob}{_case(glob, config.projects)}"
    globs = [glob for entry in config.workflows.values() for glob in entry.projects]
    for admitted in config.projects:
        if not any(overlap(glob, admitted) for glob in globs):
            yield f"projects.{admitted}: no workflow is for it (workflows.*.projects){_case(admitted, globs)}"


def _case(one: str, others: object) -> str:
    alike = isinstance(others, dict | list) and any(overlap(one.casefold(), other.casefold()) for other in others)
    return "; upper and lower case differ" if alike else ""


def _ingest(settings: Settings) -> Iterator[str]:
    gitlab, ingest = settings.config.gitlab, settings.config.ingest
    names = gitlab.webhook_secret_env if gitlab else ()
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"gitlab.webhook_secret_env: {name} stands twice; to rotate, name a second variable"
    known = ingest.sqs_region or (ingest.queue_url is None) or queue.region_of(ingest.queue_url)
    if not known and not any(settings.environ.get(name) for name in _AWS_REGION):
        yield "ingest.sqs_region: the queue's address names no region; set it, unless the pod has AWS_DEFAULT_REGION"


def _rules(where: str, entry: WorkflowEntry) -> Iterator[str]:
    rules = entry.trigger_rules
    if rules is None:
        return
    if entry.action == "manual":
        yield f"{where}: nothing starts the workflow by itself; give it an action (pipeline, merge_request)"
        return
    of_pipeline = entry.action == "pipeline"
    allowing = [rule for rule in rules if rule.action == "allow"]
    if not allowing:
        yield f"{where}: no rule allows anything, so nothing starts it; end the list with {{action: allow}}"
    elif not of_pipeline and all(rule.status is not None for rule in allowing):
        yield f"{where}: every rule that allows names a status, which merge requests have not: nothing starts it"
    for number, rule in enumerate(rules):
        if of_pipeline and rule.status is not None:
            yield from _status(f"{where}[{number}].status", rule.status)
        for field, glob in (("branch", rule.branch), ("title", rule.title), ("user", rule.user)):
            if glob and _REGULAR.search(glob):
                yield f"{where}[{number}].{field}: {glob} looks like a regular expression; it is a glob, such as fix/*"
        before = next((n for n in range(number) if _covers(rules[n], rule, of_pipeline=of_pipeline)), None)
        if before is not None:
            yield f"{where}[{number}]: is never reached, for [{before}] decides whatever it fits"


def _status(where: str, glob: str) -> Iterator[str]:
    if any(fnmatchcase(status, glob) for status in ENDED):
        return
    close = difflib.get_close_matches(glob, sorted(ENDED), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    yield f"{where}: {glob} is no status that a pipeline ends with ({', '.join(sorted(ENDED))}){meant}"


def _covers(first: TriggerRule, second: TriggerRule, *, of_pipeline: bool) -> bool:
    """Whether all that the second fits, the first does too. Says no where it is not sure."""
    by_status = _fits_all(first.status or FAILED, second.status or FAILED)
    status = by_status if of_pipeline else first.status is None
    globs = ((first.user, second.user), (first.branch, second.branch), (first.title, second.title))
    return status and all(_fits_all(a, b) for a, b in globs) and first.fork in (None, second.fork)


def _fits_all(glob: str | None, other: str | None) -> bool:
    if glob is None or glob == "*" or glob == other:
        return True
    return other is not None and not _GLOB.search(other) and fnmatchcase(other, glob)


def overlap(one: str, other: str) -> bool:
    """Whether some path fits both globs; a set in brackets counts as any character: no warning is wrong."""
    first, second = (list(re.sub(r"\[!?.[^]]*\]", "?", glob)) for glob in (one, other))
    reached = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        for step in _steps(first, second, *waiting.pop()):
            if step not in reached:
                reached.add(step)
                waiting.append(step)
    return (len(first), len(second)) in reached


def _steps(first: list[str], second: list[str], i: int, j: int) -> Iterator[tuple[int, int]]:
    """Where a match may go on: past a star, a character that a star takes, or one that both take."""
    a, b = first[i : i + 1], second[j : j + 1]
    if a == ["*"]:
        yield i + 1, j
        if b:
            yield i, j + 1
    elif b == ["*"]:
        yield i, j + 1
        if a:
            yield i + 1, j
    elif a and b and (a == b or "?" in (a[0], b[0])):
        yield i + 1, j + 1
