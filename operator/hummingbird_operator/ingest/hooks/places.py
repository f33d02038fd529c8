"""Where hooks of ours may be: projects that the allow list names, those behind its globs, and the groups above them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from hummingbird_operator.ingest.hooks.hooks import Attempt, Delivery, Hook

MOST = 100
"""Projects behind globs: each costs some requests an hour."""
LISTED = 300
"""Projects that are read to find them."""
_HOUR = timedelta(hours=1)
_GLOB = re.compile(r"[*?\[]")


class Deliveries(Protocol):
    """What is asked of GitLab, by blocking calls: `hooks.Hooks`, of projects or of groups."""

    def hooks(self, name: str) -> Sequence[Hook]:
        """All hooks of a project or group."""

    def failed(self, name: str, hook_id: int) -> Iterator[Delivery]:
        """What got a 4xx, a 5xx or no answer, newest first."""

    def succeeded(self, name: str, hook_id: int) -> Iterator[Attempt]:
        """What got a 2xx, newest first."""

    def enable(self, name: str, hook: Hook) -> None:
        """End what GitLab did to a hook after failures."""


@dataclass(frozen=True)
class Place:
    """A project, or a group whose hooks tell of its projects."""

    name: str
    deliveries: Deliveries
    projects: tuple[str, ...]
    """Whose events its hooks tell, of those that are known to be admitted."""
    group: bool = False
    named: bool = False
    """The allow list names it, so that it should have a hook."""

    def __str__(self) -> str:
        return f"the group {self.name}" if self.group else self.name


class Projects(Protocol):
    """What is asked of GitLab: `lists.Lists`."""

    def projects(self, since: datetime) -> Iterable[str]:
        """The paths of those where the token is a Maintainer, the busiest first."""


@dataclass(frozen=True)
class Globs:
    """Finds the projects that only a glob of the allow list admits; blocking."""

    listed: Projects
    admits: Callable[[str], bool]

    def found(self, since: datetime) -> tuple[list[str], bool]:
        """The projects in which anything happened since, and whether there may be more. Raises what GitLab refuses."""
        found: list[str] = []
        for number, path in enumerate(self.listed.projects(since - _HOUR)):
            if number >= LISTED or len(found) >= MOST:
                return found, True
            if self.admits(path):
                found.append(path)
        return found, False


def exact(projects: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Of the allow list: the projects that are named, and the globs, whose projects nobody lists."""
    globs = [path for path in projects if _GLOB.search(path)]
    return [path for path in projects if path not in globs], globs


def groups_above(projects: Iterable[str], globs: Iterable[str] = ()) -> list[str]:
    """The names that may be groups with projects of ours, the outermost first: of a glob what stands before it."""
    above: set[str] = set()
    for path in [*projects, *(_GLOB.split(glob, maxsplit=1)[0] + "?" for glob in globs)]:
        parts = path.split("/")[:-1]
        above |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return sorted(above)


def below(group: str, projects: Iterable[str]) -> tuple[str, ...]:
    """Those of the projects that are in the group."""
    return tuple(project for project in projects if project.startswith(f"{group}/"))
