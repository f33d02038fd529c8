"""Create an AgentRun once: its name is the claim, and a name that is taken must be taken by the same event."""

from __future__ import annotations

from hummingbird_operator.errors import Invalid


class NameTaken(Invalid):
    """An AgentRun of that name was made from something else: its creator, or two equal hashes, need a person."""
