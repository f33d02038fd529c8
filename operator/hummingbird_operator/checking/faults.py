"""What can never work as it stands in the file."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from hummingbird_ai import models
from hummingbird_operator.checking.needed import of_webhook
from hummingbird_operator.config import Config, WorkflowEntry
from hummingbird_operator.config.globs import covers, is_glob
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.hooks import setup
from hummingbird_operator.ingest.webhook import signatures
from hummingbird_operator.settings import Settings


def faults(settings: Settings) -> list[str]:
    """What can never work: unknown models, useless secrets, an address that no hook may have, reads without a token."""
    config = settings.config
    return [
        *_unknown_models(config),
        *_useless_secrets(settings),
        *_hook_address(settings),
        *_unread(config),
        *_one_namespace(settings),
    ]


def _unknown_models(config: Config) -> Iterator[str]:
    asked = {"models.default": config.models.default}
    asked |= {f"workflows.{name}.model": entry.model for name, entry in config.workflows.items() if entry.model}
    for where, model in asked.items():
        try:
            models.build_model(model, model_regions=config.models.regions)
        except models.ModelError as error:
            yield f"{where}: {error.problem}"


def _useless_secrets(settings: Settings) -> Iterator[str]:
    for where, (env, file) in of_webhook(settings.config).items():
        try:
            secret = settings.secret(where, env=env, file=file) if "webhook_secret" in where else "none"
        except Invalid:
            continue  # missing() says so
        if not signatures.usable(secret):
            yield f"{where}: begins with whsec_ and is no signing token: base64 of at least 24 bytes must follow"


def _hook_address(settings: Settings) -> Iterator[str]:
    if settings.config.ingest.webhook_url is not None:
        try:
            setup.hook_url(settings, None, lambda _: None)
        except Invalid as error:
            yield str(error)


def _unread(config: Config) -> Iterator[str]:
    """Workflows that read GitLab where nothing gives them a token: each of their runs ends Invalid."""
    for name, workflow in config.workflows.items():
        source = workflow.data_sources.get("gitlab")
        if config.gitlab is None or source is None or source.token_env is not None:
            continue
        for path, project in config.projects.items():
            if "gitlab" not in project.tokens and _serves(workflow, path, config):
                yield (
                    f"projects.{path}.tokens: workflow {name} reads GitLab, and nothing names a read token: give "
                    f"{{gitlab: NAME}}, or workflows.{name}.data_sources.gitlab.token_env"
                )


def _serves(workflow: WorkflowEntry, path: str, config: Config) -> bool:
    """Whether the workflow is certainly for some project that has this entry of the allow list."""
    if any(fnmatchcase(path, glob) or covers(glob, path) for glob in workflow.projects):
        return True
    named = (project for project in workflow.projects if not is_glob(project))
    return any(config.project(project) is config.projects[path] for project in named)


def _one_namespace(settings: Settings) -> Iterator[str]:
    """Only where the environment names the runs' own; else the operator says so when it starts."""
    namespace = settings.environ.get("HUMMINGBIRD_NAMESPACE")
    if namespace and namespace == settings.config.sandbox.namespace:
        yield f"sandbox.namespace: {namespace} is the namespace of the runs; sandboxes need one of their own"
