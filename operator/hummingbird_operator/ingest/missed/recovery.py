"""Replay and catch-up put together from the settings: what an ingestor of webhooks does about what it missed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry

from hummingbird_operator.delivery.bounded import Turns
from hummingbird_operator.delivery.reading import Reader
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.handle import Handles
from hummingbird_operator.ingest.hooks.hooks import GroupHooks, Hooks
from hummingbird_operator.ingest.hooks.places import Globs, exact
from hummingbird_operator.ingest.missed.catchup import Catchup
from hummingbird_operator.ingest.missed.lists import Lists
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.missed.replay import Replay
from hummingbird_operator.ingest.missed.seen import Seen

if TYPE_CHECKING:
    from hummingbird_operator.settings import Settings

logger = logging.getLogger(__name__)

LIST_TIMEOUT = (3.0, 20.0)
"""Seconds to connect to GitLab, and between two pieces of its answer: a page of failed deliveries may be large."""
_WHERE = "gitlab.hooks_token_env"

R = TypeVar("R", bound=Reader)


@contextlib.contextmanager
def replaying(
    settings: Settings, handler: Handles, seen: Seen, registry: CollectorRegistry, turns: Turns
) -> Iterator[Replay | None]:
    """What replays while the block lasts; None, after a word in the log, where nothing can be replayed.

    `turns` are the handler's: its large answers and ours are read one at a time.
    """
    config = settings.config
    if config.gitlab is None or (config.gitlab.hooks_token_env is None and config.gitlab.hooks_token_file is None):
        logger.warning("failed deliveries cannot be replayed: %s names no token that may list them", _WHERE)
        yield None
        return
    if config.ingest.webhook_url is None:
        logger.warning("failed deliveries cannot be replayed: ingest.webhook_url does not say which hook is ours")
        yield None
        return
    projects, globs = exact(config.projects)
    if globs:
        text = "failed deliveries of %s are not replayed in projects of which the owner of %s is no Maintainer"
        logger.warning(text, ", ".join(globs), _WHERE)
    with contextlib.ExitStack() as stack:
        hooks = stack.enter_context(contextlib.closing(hooks_of(settings)))
        groups = stack.enter_context(contextlib.closing(_reader(settings, GroupHooks)))
        lists = stack.enter_context(contextlib.closing(_reader(settings, Lists, turns)))
        patience = Patience(handler)
        yield Replay(
            hooks,
            patience,
            config.ingest.webhook_url,
            projects,
            registry,
            catchup=Catchup(lists, seen, patience, registry),
            groups=groups,
            globs=globs,
            behind=Globs(lists, lambda path: config.project(path) is not None),
        )


def hooks_of(settings: Settings) -> Hooks:
    """The hooks of the configured GitLab, with the token for them. Raises Invalid where none is named or it is gone."""
    return _reader(settings, Hooks)


def _reader(settings: Settings, kind: type[R], turns: Turns | None = None) -> R:
    gitlab = settings.config.gitlab
    if gitlab is None or (gitlab.hooks_token_env is None and gitlab.hooks_token_file is None):
        raise Invalid(_WHERE, "name a token of a Maintainer, with scope api")
    token = partial(settings.secret, _WHERE, env=gitlab.hooks_token_env, file=gitlab.hooks_token_file)
    token()
    ca = str(gitlab.ca_file) if gitlab.ca_file else None
    return kind(gitlab.url, token, ca=ca, timeout=LIST_TIMEOUT, turns=turns)
