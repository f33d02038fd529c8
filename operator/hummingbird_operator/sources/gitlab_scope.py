"""What one run may read of GitLab: its project, and the fork that its merge request comes from."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hummingbird_operator.errors import HummingbirdError, Invalid
from hummingbird_operator.sources.connection import Reader


def at(place: str) -> str:
    """The API path of a project, by id or by path."""
    return f"/projects/{quote(place, safe='')}"


class Scope:
    """The run's own project and merge request. What a tool call names is held against them; Invalid says what fits."""

    def __init__(self, reader: Reader, project: str, merge_request: int | None) -> None:
        self._reader = reader
        self.project = project
        self.merge_request = merge_request
        self._forks: dict[int, int | None] = {}

    def own(self, project: str | None) -> str:
        """This run's project; naming another is an error, also the fork: merge requests belong to the target."""
        if project is None or project == self.project:
            return self.project
        raise Invalid("project", f"this tool reads {self.project} only, not {project}: leave project out")

    def readable(self, project: str | None) -> str:
        """This run's project, or the fork of its merge request (by id or by path)."""
        if project is None or project == self.project:
            return self.project
        fork = self.fork(self.merge_request)
        if fork is not None and (project == str(fork) or project == self._path_of(fork)):
            return str(fork)
        allowed = f"{self.project} or its fork with id {fork}" if fork is not None else self.project
        raise Invalid("project", f"this run may read {allowed} only, not {project}: leave project out")

    def number(self, iid: int | None) -> int:
        """The merge request that a call means: the run's own where it names none."""
        number = iid if iid is not None else self.merge_request
        if number is None:
            raise Invalid("iid", "this run has no merge request of its own: name one")
        return number

    def fork(self, number: int | None) -> int | None:
        """The id of the project that a merge request comes from, if it is another one that still exists."""
        if number is None:
            return None
        if number not in self._forks:
            self.details(number)
        return self._forks[number]

    def details(self, number: int) -> dict[str, Any]:
        """The merge request as GitLab gives it."""
        raw = self._reader.get(f"{at(self.project)}/merge_requests/{number}", f"{self.project}!{number}")
        source, target = raw.get("source_project_id"), raw.get("target_project_id")
        self._forks[number] = source if source != target else None
        return raw

    def _path_of(self, project_id: int) -> str | None:
        try:
            return str(self._reader.get(f"/projects/{project_id}", "the fork").get("path_with_namespace"))
        except HummingbirdError:
            return None
