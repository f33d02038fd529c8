"""What a membership in a GitLab project is worth today: one rule for whoever may command us, or be read by a model."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

DEVELOPER = 30
"""The level from which a member is trusted (`Gitlab::Access::DEVELOPER`)."""
NO_ACCESS = 0
_ACTIVE = "active"


def _day(value: Any) -> Any:
    """The date of a date or of a moment: GitLab documents one and some of its APIs send the other."""
    return date.fromisoformat(value[:10]) if isinstance(value, str) else value


class Membership(BaseModel):
    """An answer of `GET /projects/:id/members/all/:user_id`, as much of it as decides.

    `state` is the account's, `membership_state` the membership's own, which only some editions send. A field that is
    missing or of another kind is a validation error: no guess decides about trust.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    access_level: int
    state: str
    membership_state: str | None = None
    expires_at: Annotated[date | None, BeforeValidator(_day)] = None

    def level(self, today: date) -> int:
        """The access level on this day in UTC; `NO_ACCESS` for an account that is not active, and once it has ended."""
        active = self.state == _ACTIVE and self.membership_state in (None, _ACTIVE)
        ended = self.expires_at is not None and self.expires_at <= today
        return self.access_level if active and not ended else NO_ACCESS
