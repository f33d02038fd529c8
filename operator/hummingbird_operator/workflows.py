"""A prompt file and its metadata as one frozen value, hashed so that a resumed session notices another workflow."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from hummingbird_operator.errors import Invalid, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hummingbird_operator.config import WorkflowEntry
    from hummingbird_operator.settings import Settings

MAX_PROMPT_BYTES = 256 * 1024
"""A prompt is replayed in every call of its runs; a quarter of a megabyte is far beyond any that helps."""


@dataclass(frozen=True)
class Workflow:
    """What a run of this name does: the prompt verbatim, and the entry of the configuration."""

    name: str
    prompt: str
    entry: WorkflowEntry
    hash: str
    """SHA-256 (16 hex digits) over prompt and data sources: what shapes the conversation."""

    def admits(self, project: str) -> bool:
        """Whether the workflow may work for that project."""
        return any(fnmatch.fnmatchcase(project, glob) for glob in self.entry.projects)


@dataclass(frozen=True)
class Workflows:
    """All workflows of the configuration by name."""

    by_name: Mapping[str, Workflow]

    def get(self, name: str) -> Workflow:
        """The workflow. Raises NotFound with the names that exist."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise NotFound(f"there is no workflow {name!r}; the configuration has: {known}")
        return self.by_name[name]


def load(settings: Settings) -> Workflows:
    """Every workflow of the configuration, with its prompt. Raises Invalid with the key of the entry and the file."""
    folder = settings.path.parent
    return Workflows(
        MappingProxyType({name: _workflow(name, entry, folder) for name, entry in settings.config.workflows.items()})
    )


def _workflow(name: str, entry: WorkflowEntry, folder: Path) -> Workflow:
    where, path = f"workflows.{name}.prompt", folder / entry.prompt
    try:
        prompt = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(where, f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Invalid(where, f"{path} is not UTF-8 text (byte {error.start})") from error
    if not prompt.strip():
        raise Invalid(where, f"{path} is empty; it must hold the prompt")
    if len(prompt.encode()) > MAX_PROMPT_BYTES:
        raise Invalid(where, f"{path} is larger than {MAX_PROMPT_BYTES} bytes, and every model call would carry it")
    sources = {source: cfg.model_dump(mode="json", exclude_none=True) for source, cfg in entry.data_sources.items()}
    digest = hashlib.sha256(json.dumps([prompt, sources], sort_keys=True).encode()).hexdigest()
    return Workflow(name, prompt, entry, digest[:16])
