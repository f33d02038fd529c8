"""`hummingbird webhook-setup`: makes, mends or checks the hook of a project. Safe to repeat.

A secret cannot be read back. Newer GitLabs say whether one is set; so a check says what it cannot know, and everything
else sets the secret again: after a rotation that is what the command is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from hummingbird_operator.errors import HummingbirdError, Invalid
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hook
from hummingbird_operator.ingest.hooks.places import exact
from hummingbird_operator.ingest.webhook.signatures import SIGNING_PREFIX
from hummingbird_operator.settings import Settings


class HookPen(Protocol):
    """What is asked of GitLab, by blocking calls: `hooks.Hooks`."""

    def hooks(self, project: str) -> Sequence[Hook]:
        """All hooks of a project."""

    def create(self, project: str, url: str, fields: Mapping[str, Any]) -> Hook:
        """Make one."""

    def update(self, project: str, hook: Hook, fields: Mapping[str, Any]) -> Hook:
        """Change some fields of one."""

    def enable(self, project: str, hook: Hook) -> None:
        """End what GitLab did to a hook after failures."""


@dataclass(frozen=True)
class Line:
    """What there is to say of one project. `right`: its hook is as it must be, now."""

    project: str
    text: str
    right: bool

    def __str__(self) -> str:
        return f"{self.project}: {self.text}"


@dataclass(frozen=True)
class Setup:
    """One address and one secret for every project. `check`: look only, write nothing."""

    pen: HookPen
    url: str
    secret: str
    check: bool

    def each(self, projects: Iterable[str]) -> Iterator[Line]:
        """A line for each project, also where GitLab refuses it."""
        for project in projects:
            try:
                yield self.one(project)
            except HummingbirdError as error:
                yield Line(project, str(error), right=False)

    def one(self, project: str) -> Line:
        """Look at the hook of one project, and mend it. Raises what GitLab refuses."""
        ours = [hook for hook in self.pen.hooks(project) if hook.url == self.url]
        if not ours:
            if self.check:
                return Line(project, f"has no hook for {self.url}", right=False)
            made = self.pen.create(project, self.url, {**WANTED, **self._secret()})
            return self._after(project, f"hook {made.id} was made, with its secret", made)
        hook, others = ours[0], [str(other.id) for other in ours[1:]]
        twice = [f"{', '.join(others)} has the same address and sends each event again: delete it"] if others else []
        faults = differences(hook)
        if self.check:
            return self._found(hook, project, [*faults.values(), *self._without_secret(hook), *twice])
        wanted = {**WANTED, "custom_webhook_template": ""}
        changed = self.pen.update(project, hook, {name: wanted[name] for name in faults} | self._secret())
        if changed.disabled:
            self.pen.enable(project, changed)
            changed = changed.model_copy(update={"alert_status": "executable"})
        before = f"mended: {'; '.join(faults.values())}" if faults else "was right"
        return self._after(project, f"hook {hook.id} {before}; its secret was set", changed, twice)

    def _found(self, hook: Hook, project: str, faults: list[str]) -> Line:
        faults = faults + _disabled(hook)
        right = "is right, as far as GitLab shows it: which secret it has cannot be read"
        return Line(project, f"hook {hook.id} {'; '.join(faults) or right}", right=not faults)

    def _after(self, project: str, text: str, hook: Hook, twice: Sequence[str] = ()) -> Line:
        """What GitLab did not take is said: an older one does not know every field."""
        left = [f"GitLab still says: {fault}" for fault in differences(hook).values()]
        left += [*self._without_secret(hook), *_disabled(hook), *twice]
        return Line(project, "; ".join([text, *left]), right=not left)

    def _secret(self) -> dict[str, str]:
        if not self.secret:
            return {}
        return {"signing_token" if self.secret.startswith(SIGNING_PREFIX) else "token": self.secret}

    def _without_secret(self, hook: Hook) -> list[str]:
        """A GitLab that says nothing of signing tokens knows none: it dropped ours, and will sign nothing."""
        if self.secret.startswith(SIGNING_PREFIX):
            if hook.signing_token_present is None:
                return ["GitLab does not say that it has a signing token: an older one ignores it; use a plain secret"]
            return [] if hook.signing_token_present else ["has no signing token"]
        return ["has no secret token"] if self.secret and hook.token_present is False else []


def differences(hook: Hook) -> dict[str, str]:
    """By field, what is not as it must be; a field that GitLab does not show is taken for right."""
    shown = {name: getattr(hook, name) for name in WANTED}
    found = {
        name: f"{name} is {'on' if shown[name] else 'off'}, must be {'on' if wanted else 'off'}"
        for name, wanted in WANTED.items()
        if shown[name] not in (None, wanted)
    }
    if hook.custom_webhook_template:
        found["custom_webhook_template"] = "custom_webhook_template changes the body, which must be GitLab's own"
    return found


def hook_url(settings: Settings, given: str | None, say: Callable[[str], None]) -> str:
    """Where hooks shall send to; `say` is told of one that is not safe. Raises Invalid for what is no such address."""
    where, url = "--url" if given else "ingest.webhook_url", given or settings.config.ingest.webhook_url
    if not url:
        raise Invalid(where, "set the public address of POST /webhooks/gitlab, or give --url")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(where, f"is no address: {error}") from error
    if parts.scheme not in ("https", "http") or not host:
        raise Invalid(where, "must begin with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise Invalid(where, "must hold no name and no password: everybody who may see the hook would see them")
    if parts.scheme == "http":
        say(f"{where}: WITHOUT TLS anybody between GitLab and the ingestor reads every comment, and a plain secret")
    return url


def chosen(settings: Settings, given: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The projects that were asked for, or all that the allow list names. Raises Invalid for one outside of it."""
    config = settings.config
    for project in given:
        if config.project(project) is None:
            raise Invalid("--project", f"{project} is not in the allow list `projects`: its events would be ignored")
    if given:
        return list(given)
    named, globs = exact(config.projects)
    for glob in globs:
        say(f"{glob}: is a glob; name its projects with --project")
    if not named:
        raise Invalid("--project", "the allow list `projects` names no project: give one")
    return named


def _disabled(hook: Hook) -> list[str]:
    text = f"GitLab has it {hook.disabled} after failures: mend those, then send a test from the hook's page"
    return [text] if hook.disabled else []
