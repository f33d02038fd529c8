"""What is allowed and does nothing, or not what was meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hummingbird_operator.checking.rules import of_rules
from hummingbird_operator.config import Config, coherence
from hummingbird_operator.config.globs import covers, is_glob, is_regular, overlap
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.hooks import setup
from hummingbird_operator.ingest.sqs import queue
from hummingbird_operator.settings import Settings

_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_RUNS = "hummingbird"
"""Namespace of the runs where neither the command line nor the environment names one."""
_FAMILIES = ("gemini-", "claude-")
_LOOKS = "{} looks like a regular expression; it is a glob, such as group/*"


def warnings(settings: Settings) -> list[str]:
    """A sentence for all that is allowed and can never do what it was written for."""
    config = settings.config
    found = [*_without_gitlab(config), *_projects(config), *_lost(config), *_ingest(settings), *_models(config)]
    if config.sandbox.namespace == _RUNS and not settings.environ.get("HUMMINGBIRD_NAMESPACE"):
        found.append(f"sandbox.namespace: {_RUNS} is that of the runs, unless --namespace names another one")
    for name, entry in config.workflows.items():
        found += of_rules(f"workflows.{name}.trigger_rules", entry)
        most = config.limits.max_iterations
        if entry.max_iterations is not None and entry.max_iterations > most:
            found.append(
                f"workflows.{name}.max_iterations: {entry.max_iterations} counts as {most}, limits.max_iterations"
            )
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
            if is_regular(glob):
                yield f"workflows.{name}.projects: {_LOOKS.format(glob)}"
            if not any(overlap(glob, admitted) for admitted in config.projects):
                yield f"workflows.{name}.projects: no entry of projects fits {glob}{_case(glob, config.projects)}"
    globs = [glob for entry in config.workflows.values() for glob in entry.projects]
    for admitted in config.projects:
        if is_regular(admitted):
            yield f"projects.{admitted}: {_LOOKS.format(admitted)}"
        if not any(overlap(glob, admitted) for glob in globs):
            yield f"projects.{admitted}: no workflow is for it (workflows.*.projects){_case(admitted, globs)}"


def _lost(config: Config) -> Iterator[str]:
    """Entries whose settings do not count for projects that an earlier glob fits as well."""
    unreachable = dict(coherence.unreachable(config))
    for glob, before in unreachable.items():
        yield f"projects.{glob}: never counts, for {before} stands before it and fits all of its projects; put it first"
    globs = [glob for glob in config.projects if is_glob(glob)]
    for number, glob in enumerate(globs):
        if not config.projects[glob].internal_notes or glob in unreachable:
            continue
        for first in globs[:number]:
            public = not config.projects[first].internal_notes
            if public and overlap(first, glob) and not covers(glob, first):
                yield f"projects.{glob}: internal_notes do not count where {first}, which stands first, fits too"


def _case(one: str, others: object) -> str:
    alike = isinstance(others, dict | list) and any(overlap(one.casefold(), other.casefold()) for other in others)
    return "; upper and lower case differ" if alike else ""


def _ingest(settings: Settings) -> Iterator[str]:
    gitlab, ingest = settings.config.gitlab, settings.config.ingest
    names = gitlab.webhook_secret_env if gitlab else ()
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"gitlab.webhook_secret_env: {name} stands twice; to rotate, name a second variable"
    if ingest.webhook_url is not None and gitlab is not None:
        if not names and not gitlab.webhook_secret_file:
            yield "gitlab.webhook_secret_env: names no secret, so nothing is taken at ingest.webhook_url"
        with contextlib.suppress(Invalid):  # that is a fault
            said = list[str]()
            setup.hook_url(settings, None, said.append)
            yield from said
    known = ingest.sqs_region or (ingest.queue_url is None) or queue.region_of(ingest.queue_url)
    if not known and not any(settings.environ.get(name) for name in _AWS_REGION):
        yield "ingest.sqs_region: the queue's address names no region; set it, unless the pod has AWS_DEFAULT_REGION"


def _models(config: Config) -> Iterator[str]:
    """Regions and prices of models that no run can have."""
    for prefix in config.models.regions:
        if not any(prefix.startswith(family) or family.startswith(prefix) for family in _FAMILIES):
            yield f"models.regions.{prefix}: no model's name begins so; they begin with {' or '.join(_FAMILIES)}"
    for name in config.models.prices:
        if not name.startswith(_FAMILIES):
            yield f"models.prices.{name}: no model has this name; they begin with {' or '.join(_FAMILIES)}"
