"""GitLab as a data source: merge requests, discussions, CI results, job logs and files of one project, read-only.

`register` fixes the project. A tool reads that one and, for a merge request from a fork, the fork; an argument that
names another project is refused. The token stays in the reader's closure: it is in no definition, result or text.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable

from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import Token
from hummingbird_operator.sessions.tools import SourceResult, ToolRegistry
from hummingbird_operator.sources import gitlab_definitions as definitions
from hummingbird_operator.sources.connection import Patience, Reader, Sleep
from hummingbird_operator.sources.gitlab_ci import Ci
from hummingbird_operator.sources.gitlab_discussions import Bot, Discussions
from hummingbird_operator.sources.gitlab_merge_requests import MergeRequests
from hummingbird_operator.sources.gitlab_repository import Repository
from hummingbird_operator.sources.gitlab_scope import Scope

logger = logging.getLogger(__name__)


def register(
    registry: ToolRegistry,
    *,
    url: str,
    token: Token,
    project: str,
    merge_request: int | None = None,
    internal: bool = False,
    bot: Bot = None,
    ca: str | None = None,
    patience: Patience | None = None,
    sleep: Sleep = time.sleep,
) -> None:
    """Offer the seven GitLab tools for one project.

    `token` is a reading one (scope read_api), never the one that writes notes; a function is asked at each request.
    `merge_request` is the run's own, used where a tool call names none. `internal`: this run's own note is internal, so
    it may be made of internal comments. `bot` is the user id of the account that writes notes, or what finds it out.
    `ca` is the path of a CA bundle.
    """
    reader = Reader(url, token, ca=ca, sleep=sleep, patience=patience or Patience())
    scope = Scope(reader, project, merge_request)
    merge_requests, ci, repository = MergeRequests(reader, scope), Ci(reader, scope), Repository(reader, scope)
    discussions = Discussions(reader, scope, internal=internal, bot=bot)
    for definition, function in (
        (definitions.MR_DETAILS, merge_requests.mr_details),
        (definitions.COMMIT_STATUSES, ci.commit_statuses),
        (definitions.MR_DIFF, merge_requests.mr_diff),
        (definitions.FILE_AT_REF, repository.file_at_ref),
        (definitions.JOB_LOG, ci.job_log),
        (definitions.MR_DISCUSSIONS, discussions.mr_discussions),
        (definitions.REPO_ARCHIVE, repository.repo_archive),
    ):
        registry.register_data_source(definition, _told(function))


def _told(function: Callable[..., SourceResult]) -> Callable[..., SourceResult]:
    """Failures that have an answer become one: the model reads what to do, the log gets no stack trace."""

    @functools.wraps(function)
    def tool(**arguments: object) -> SourceResult:
        try:
            return function(**arguments)
        except NotFound as error:
            return {"error": str(error)}
        except (Invalid, Unavailable) as error:
            # the model can only go on without it; people must see it too: in the log and under the note's "Not read"
            logger.warning("%s: %s", function.__name__, error)
            return {"error": str(error), "incomplete": [f"{function.__name__.replace('_', ' ')}: {error}"]}

    return tool
