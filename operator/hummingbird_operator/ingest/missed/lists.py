"""GitLab's own lists of what happened in a project, for what no webhook told. Reads only, by the hooks' token.

Every list comes newest first and is read as far as its reader goes, page by page. What an older GitLab does not filter
is filtered by who reads: unknown parameters are passed over there without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from hummingbird_operator.delivery.reading import Reader, merge_request_path, project_path
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.forges.gitlab import SERVICE
from hummingbird_operator.ingest.hooks.hooks import about
from hummingbird_operator.ingest.hooks.moments import api_time, moment

PAGES = 3
"""Of the list of all projects."""
PAGE = 100
MAINTAINER = 40

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Flag = Annotated[bool, BeforeValidator(lambda value: value is True)]
When = Annotated[datetime | None, BeforeValidator(moment)]


class Row(BaseModel):
    """A row of a list: what is not named is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Person(Row):
    """Who did it."""

    id: int
    username: str | None = None


class Home(Row):
    """A project."""

    id: int
    path_with_namespace: str
    web_url: str | None = None


class Change(Row):
    """A merge request as it is now."""

    iid: int
    title: Text = ""
    state: Text = ""
    draft: Flag = False
    work_in_progress: Flag = False
    source_branch: Text = ""
    source_project_id: int | None = None
    target_project_id: int | None = None
    sha: Text = ""
    created_at: When = None
    updated_at: When = None
    web_url: str | None = None
    author: Person | None = None


class Words(Row):
    """A note as it is now."""

    id: int
    type: str | None = None
    body: Text = ""
    author: Person | None = None
    created_at: When = None
    updated_at: When = None
    system: Flag = False
    internal: Flag = False
    confidential: Flag = False


class Version(Row):
    """The commits of a merge request after one of its pushes."""

    head_commit_sha: Text = ""
    created_at: When = None


class Piped(Row):
    """A pipeline; only its details say who started it and when it ended."""

    id: int
    status: Text = ""
    source: Text = ""
    ref: Text = ""
    updated_at: When = None
    finished_at: When = None
    web_url: str | None = None
    user: Person | None = None


class _Numbered(Row):
    id: int


class _Thread(Row):
    id: str
    notes: tuple[_Numbered, ...] = ()


R = TypeVar("R", bound=Row)


class Lists(Reader):
    """Methods raise Unavailable, NotFound, and Invalid where the hooks' token lacks a right."""

    def projects(self, since: datetime) -> Iterator[Home]:
        """Those that the token is a Maintainer of and where something happened since, the busiest first, three pages.

        GitLab writes a project's last activity down at most once an hour: give `since` an hour more.
        """
        query = {"membership": "true", "min_access_level": str(MAINTAINER), "archived": "false", "simple": "true"}
        query |= {"order_by": "last_activity_at", "sort": "desc", "last_activity_after": api_time(since)}
        with about("projects"):
            for number, raw in enumerate(self._list("/projects", "projects", query=query)):
                if number >= PAGES * PAGE:
                    return
                yield from _readable(Home, raw)

    def home(self, project: str) -> Home:
        """The project itself, by the path that it has now."""
        return self._one(Home, project_path(project), project)

    def changes(self, project: str, since: datetime) -> Iterator[Change]:
        """Merge requests that anything happened to since, in any state: a comment on a closed one counts as well."""
        query = {"scope": "all", "updated_after": api_time(since), "order_by": "updated_at", "sort": "desc"}
        return self._rows(Change, f"{project_path(project)}/merge_requests", project, query)

    def change(self, project: str, iid: int) -> Change:
        """One merge request."""
        return self._one(Change, merge_request_path(project, iid), f"{project}!{iid}")

    def notes(self, project: str, iid: int) -> Iterator[Words]:
        """The notes of a merge request, GitLab's own among them."""
        query = {"order_by": "created_at", "sort": "desc"}
        return self._rows(Words, f"{merge_request_path(project, iid)}/notes", f"{project}!{iid}", query)

    def threads(self, project: str, iid: int) -> Iterator[tuple[int, str]]:
        """Each note with the id of the thread that it stands in, the oldest threads first: GitLab knows no other."""
        for thread in self._rows(_Thread, f"{merge_request_path(project, iid)}/discussions", f"{project}!{iid}", {}):
            yield from ((note.id, thread.id) for note in thread.notes)

    def versions(self, project: str, iid: int) -> Iterator[Version]:
        """What was pushed to a merge request."""
        return self._rows(Version, f"{merge_request_path(project, iid)}/versions", f"{project}!{iid}", {})

    def pipelines(self, project: str, since: datetime) -> Iterator[Piped]:
        """Pipelines of merge requests whose status changed since, by their number, without what only details say."""
        query = {"source": "merge_request_event", "updated_after": api_time(since), "order_by": "id", "sort": "desc"}
        return self._rows(Piped, f"{project_path(project)}/pipelines", project, query)

    def pipeline(self, project: str, number: int) -> Piped:
        """One pipeline with its details."""
        return self._one(Piped, f"{project_path(project)}/pipelines/{number}", f"pipeline {number} of {project}")

    def _one(self, model: type[R], path: str, what: str) -> R:
        with about(what):
            raw = self._get(path, what)
        found = list(_readable(model, raw))
        if not found:
            raise Unavailable(SERVICE, f"its answer about {what} cannot be read")
        return found[0]

    def _rows(self, model: type[R], path: str, what: str, query: dict[str, str]) -> Iterator[R]:
        with about(what):
            for raw in self._list(path, what, page=PAGE, query=query):
                yield from _readable(model, raw)


def _readable(model: type[R], raw: Any) -> Iterator[R]:
    """The row; one of another shape hides no other."""
    try:
        yield model.model_validate(raw)
    except ValidationError:
        return
