"""What GitLab will not let the bot do: where it is `Invalid`, a person must mend something, or the caller does less."""

from __future__ import annotations

from hummingbird_operator.errors import Invalid, Unavailable


class Forbidden(Invalid):
    """The bot's role or its token's scope forbids it (by now): 403, or 404 for a project that it cannot see."""


class InternalNoteRefused(Invalid):
    """GitLab dropped the `internal` flag: the note was public, and was deleted again."""


class TooLong(Invalid):
    """The text is longer than GitLab, or a proxy in front of it, takes: a shorter one may pass."""


class Refused(Unavailable):
    """A write that GitLab refused before it did anything (429, 401): surely nothing was written."""


class TooLarge(Invalid):
    """An answer is longer than we read: it would be the same at every try."""
