"""What GitLab will not let the bot do, as kinds of `Invalid`: a person must mend something, or the caller does less."""

from __future__ import annotations

from hummingbird_operator.errors import Invalid


class Forbidden(Invalid):
    """GitLab answered 403: the bot's role, or its token's scope, does not allow it (any more)."""


class InternalNoteRefused(Invalid):
    """GitLab dropped the `internal` flag: the note was public, and was deleted again."""


class TooLong(Invalid):
    """The text is longer than GitLab, or a proxy in front of it, takes: a shorter one may pass."""
