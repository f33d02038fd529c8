"""GitLab's own lists of what happened in a project, for what no webhook told. Reads only, by the hooks' token.

Every list comes newest first and is read as far as its reader goes, page by page. What an older GitLab does not filter
is filtered by who reads: unknown parameters are passed over there without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hummingbird_operator.delivery.awards import Awards
from hummingbird_operator.delivery.reading import merge_request_path, project_path
from hummingbird_operator.delivery.refusals import TooLarge
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.forges.gitlab import SERVICE
from hummingbird_operator.ingest.hooks.hooks import about
from hummingbird_operator.ingest.hooks.moments import api_time, moment

PAGE = 100
PAGES_OF_NOTES = (20, 4, 1)
"""Notes may have a million characters each: what is too long at once is read in smaller pages."""
MAINTAINER = 40

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Flag = Annotated[bool, BeforeValidator(lambda value: value is True)]
When = Annotated[datetime | None, BeforeValidator(moment)]


class Row(BaseModel):
    """A row of a list: what is not named is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class Person(Row):
    """Who did it."""

    id: int
    username: str | None = None


class Project(Row):
    """A project."""

    id: int
    path_with_namespace: str
    web_url: str | None = None


class MergeRequest(Row):
    """A merge request as it is now."""

    iid: int
    title: Text = ""
    state: Text = ""
    draft: Annotated[Flag, Field(validation_alias=AliasChoices("draft", "work_in_progress"))] = False
    source_branch: Text = ""
    source_project_id: int | None = None
    target_project_id: int | None = None
    sha: Text = ""
    created_at: When = None
    updated_at: When = None
    web_url: str | None = None
    author: Person | None = None


class Note(Row):
    """A note as it is now."""

    id: int
    type: str | None = None
    body: Text = ""
    author: Person | None = None
    created_at: When = None
    updated_at: When = None
    resolved_at: When = None
    system: Flag = False
    internal: Flag = False
    confidential: Flag = False


class Version(Row):
    """The commits of a merge request after one of its pushes."""

    head_commit_sha: Text = ""
    created_at: When = None


class Pipeline(Row):
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


class Lists(Awards):
    """Methods raise Unavailable, NotFound, and Invalid where the hooks' token lacks a right."""

    _dropped = 0

    def dropped(self) -> int:
        """How many rows had another shape, since that was asked last."""
        count, self._dropped = self._dropped, 0
        return count

    def projects(self, since: datetime) -> Iterator[str]:
        """The paths of those that the token is a Maintainer of and where something happened since, the busiest first.

        GitLab writes a project's last activity down at most once an hour: give `since` an hour more.
        """
        query = {"membership": "true", "min_access_level": str(MAINTAINER), "archived": "false", "simple": "true"}
        query |= {"order_by": "last_activity_at", "sort": "desc", "last_activity_after": api_time(since)}
        return (project.path_with_namespace for project in self._rows(Project, "/projects", "projects", query))

    def project(self, project: str) -> Project:
        """The project itself, by the path that it has now."""
        return self._one(Project, project_path(project), project)

    def merge_requests(self, project: str, since: datetime) -> Iterator[MergeRequest]:
        """Merge requests that anything happened to since, in any state: a comment on a closed one counts as well."""
        query = {"scope": "all", "updated_after": api_time(since), "order_by": "updated_at", "sort": "desc"}
        return self._rows(MergeRequest, f"{project_path(project)}/merge_requests", project, query)

    def merge_request(self, project: str, iid: int) -> MergeRequest:
        """One merge request."""
        return self._one(MergeRequest, merge_request_path(project, iid), f"{project}!{iid}")

    def notes(self, project: str, iid: int) -> Iterator[Note]:
        """The notes of a merge request, GitLab's own among them."""
        query = {"order_by": "created_at", "sort": "desc"}
        return self._small_rows(Note, f"{merge_request_path(project, iid)}/notes", f"{project}!{iid}", query)

    def threads(self, project: str, iid: int) -> Iterator[tuple[int, str]]:
        """Each note with the id of the thread that it stands in, the oldest threads first: GitLab knows no other."""
        path = f"{merge_request_path(project, iid)}/discussions"
        for thread in self._small_rows(_Thread, path, f"{project}!{iid}", {}):
            yield from ((note.id, thread.id) for note in thread.notes)

    def versions(self, project: str, iid: int) -> Iterator[Version]:
        """What was pushed to a merge request."""
        return self._rows(Version, f"{merge_request_path(project, iid)}/versions", f"{project}!{iid}", {})

    def pipelines(self, project: str, since: datetime) -> Iterator[Pipeline]:
        """Pipelines of merge requests whose status changed since, by their number, without what only details say."""
        query = {"source": "merge_request_event", "updated_after": api_time(since), "order_by": "id", "sort": "desc"}
        return self._rows(Pipeline, f"{project_path(project)}/pipelines", project, query)

    def pipeline(self, project: str, number: int) -> Pipeline:
        """One pipeline with its details."""
        return self._one(Pipeline, f"{project_path(project)}/pipelines/{number}", f"pipeline {number} of {project}")

    def _one(self, model: type[R], path: str, what: str) -> R:
        with about(what):
            raw = self._get(path, what)
        found = _readable(model, raw)
        if found is None:
            raise Unavailable(SERVICE, f"its answer about {what} cannot be read")
        return found

    def _rows(
        self, model: type[R], path: str, what: str, query: dict[str, str], page: int = PAGE, begin: int = 0
    ) -> Iterator[R]:
        """From that row on. One of another shape is counted and hides no other."""
        with about(what):
            for raw in islice(self._list(path, what, page=page, query=query), begin, None):
                found = _readable(model, raw)
                if found is None:
                    self._dropped += 1
                else:
                    yield found

    def _small_rows(self, model: type[R], path: str, what: str, query: dict[str, str]) -> Iterator[R]:
        done = 0
        for page in PAGES_OF_NOTES:
            try:
                for row in self._rows(model, path, what, query, page, done):
                    yield row
                    done += 1
                return
            except TooLarge:
                if page == PAGES_OF_NOTES[-1]:
                    raise


def _readable(model: type[R], raw: Any) -> R | None:
    try:
        return model.model_validate(raw)
    except ValidationError:
        return None
