"""Which secrets each process has by the file, and which of them are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.settings import Settings

Process = Literal["operator", "ingest-webhook", "ingest-sqs"]
PROCESSES: tuple[Process, ...] = get_args(Process)
"""The processes that read the file; each has a Secret with what it needs."""

_Named = dict[str, tuple[str | None, Path | None]]


def missing(settings: Settings, process: Process | None = None) -> list[str]:
    """A sentence for every secret that a process (None: any of them) is to have by the file, and that is not there."""
    named: _Named = {}
    if settings.config.gitlab:
        named["gitlab.token_env"] = (settings.config.gitlab.token_env, settings.config.gitlab.token_file)
    if process in (None, "operator"):
        named |= _of_operator(settings.config)
    if process in (None, "ingest-webhook"):
        named |= of_webhook(settings.config)
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


def of_webhook(config: Config) -> _Named:
    """The key, variable and file of each secret that only `ingest webhook` needs."""
    if config.gitlab is None:
        return {}
    named: _Named = {"gitlab.hooks_token_env": (config.gitlab.hooks_token_env, config.gitlab.hooks_token_file)}
    named |= {f"gitlab.webhook_secret_env ({env})": (env, None) for env in config.gitlab.webhook_secret_env}
    named |= {f"gitlab.webhook_secret_file ({file})": (None, file) for file in config.gitlab.webhook_secret_file}
    return named
