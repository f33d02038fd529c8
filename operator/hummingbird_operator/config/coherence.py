"""What no section can know by itself: sections that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hummingbird_ai.pricing import parse_prices
from hummingbird_operator.config.globs import covers, is_glob

if TYPE_CHECKING:
    from hummingbird_operator.config import Config


def problems(config: Config) -> Iterator[str]:
    """A sentence with the key for each fault that keeps every process from starting."""
    if "help" in config.workflows:
        yield "workflows.help: the name is taken by the help command"
    yield from _prices(config)
    yield from _read_by_the_writer(config)
    yield from _made_public(config)


def _prices(config: Config) -> Iterator[str]:
    for model, price in config.models.prices.items():
        try:
            parse_prices({model: {str(kind): usd for kind, usd in price.items()}})
        except ValueError as error:
            yield f"models.prices.{error}"


def _read_by_the_writer(config: Config) -> Iterator[str]:
    readers = {
        f"projects.{name}.tokens.{source}": env
        for name, p in config.projects.items()
        for source, env in p.tokens.items()
    }
    readers |= {
        f"workflows.{name}.data_sources.{source}.token_env": entry.token_env
        for name, workflow in config.workflows.items()
        for source, entry in workflow.data_sources.items()
        if entry.token_env
    }
    writer = config.gitlab.token_env if config.gitlab else None
    for where, env in readers.items():
        if env == writer:
            yield f"{where}: {env} is the token that writes notes; a data source gets a read token of its own"


def _made_public(config: Config) -> Iterator[str]:
    """Entries that say internal_notes and never count: what was to be internal would be public, in silence."""
    for glob, before in unreachable(config):
        if config.projects[glob].internal_notes and not config.projects[before].internal_notes:
            yield (
                f"projects.{glob}: internal_notes would be lost and notes would be public, for {before} stands before "
                f"it and fits all of its projects; put {glob} first"
            )


def unreachable(config: Config) -> Iterator[tuple[str, str]]:
    """Globs of `projects` that never count, each with the earlier one that fits all that it fits."""
    globs = [glob for glob in config.projects if is_glob(glob)]
    for number, glob in enumerate(globs):
        before = next((first for first in globs[:number] if covers(first, glob)), None)
        if before is not None:
            yield glob, before
