"""`config.yaml` as one frozen value. `__main__` reads it once and passes it down; nothing else reads the environment.

Secrets are not in the file: it names the variable or the file that holds each. Files are read at use, so that a
rotated Secret needs no restart. The sections and their keys are in `config`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.problems import invalid, not_yaml

logger = logging.getLogger(__name__)

WARN_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """The configuration with what the command line and the environment added to it."""

    config: Config
    path: Path
    """The configuration file; prompts are relative to its folder."""
    environ: Mapping[str, str] = field(repr=False, default_factory=dict)
    known: set[str] = field(repr=False, compare=False, default_factory=set)
    """Every secret that was read from a file so far: what is to be redacted is known without a look at the disk."""
    warned: dict[str, float] = field(repr=False, compare=False, default_factory=dict)
    """When it was last said that a secret cannot be read, by monotonic seconds."""

    def secret(self, where: str, *, env: str | None, file: Path | None = None) -> str:
        """The value of a secret, read now. Raises Invalid with what to set when it is missing or empty.

        `where` is the key of the variable; what is wrong with a file is told with the file's own key.
        """
        if file is not None:
            where = f"{where.removesuffix('_env')}_file" if where.endswith("_env") else where
            try:
                value = file.read_text().strip()
            except OSError as error:
                raise Invalid(where, f"cannot read {file}: {error.strerror}") from error
            except UnicodeDecodeError:
                raise Invalid(where, f"{file} is not UTF-8 text; it must hold the secret") from None
            if not value:
                raise Invalid(where, f"{file} is empty; it must hold the secret")
            self.known.add(value)
            return value
        value = self.environ.get(env or "", "").strip()
        if not value:
            raise Invalid(where, f"the environment variable {env} is not set or empty; it must hold the secret")
        return value

    def webhook_secrets(self) -> tuple[str, ...]:
        """Those secrets that a webhook may carry which can be read now. Raises Invalid where none can.

        One that is missing keeps nobody out who knows another; it is warned of once a minute.
        """
        found, faults = list[str](), list[Invalid]()
        for where, env, file in self._webhook_secrets():
            try:
                found.append(self.secret(where, env=env, file=file))
            except Invalid as error:
                faults.append(error)
        if not found:
            raise faults[0]
        for fault in faults:
            self._warn(str(fault))
        return tuple(found)

    def new_webhook_secret(self) -> str:
        """The one that is named first: while a secret is rotated, the new one. Raises Invalid."""
        where, env, file = next(self._webhook_secrets())
        return self.secret(where, env=env, file=file)

    def _webhook_secrets(self) -> Iterator[tuple[str, str | None, Path | None]]:
        """Key, variable and file of each."""
        gitlab = self.config.gitlab
        if gitlab is None or not (gitlab.webhook_secret_env or gitlab.webhook_secret_file):
            raise Invalid("gitlab.webhook_secret_env", "name at least one secret: nobody may post events without one")
        for env in gitlab.webhook_secret_env:
            yield "gitlab.webhook_secret_env", env, None
        for file in gitlab.webhook_secret_file:
            yield "gitlab.webhook_secret_file", None, file

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - self.warned.get(text, -math.inf) >= WARN_AGAIN_SECONDS:
            self.warned[text] = now
            logger.warning("a webhook's secret is not to be had, the others count: %s", text)


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets a later key of the same name win in silence; here it is an error with both lines."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As the base class does, after a look at the keys."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in seen:
                    problem = f"the key {key.value} stands twice, in lines {seen[key.value]} and {line}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of a configuration file. Raises Invalid with the file and the path of the key."""
    try:
        raw = yaml.load(path.read_text(), _UniqueKeys)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise Invalid(str(path), f"cannot read the configuration: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise Invalid(str(path), f"is not YAML: {not_yaml(error)}") from error
    if not isinstance(raw, dict):
        raise Invalid(str(path), "must be a YAML mapping with the keys models, sessions and workflows")
    try:
        return Settings(Config.model_validate(raw), path, dict(environ))
    except ValidationError as error:
        fault = invalid(Config, error, "")
        raise Invalid(str(path), str(fault).removeprefix("the object: ")) from error
