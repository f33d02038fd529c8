"""What quick actions do, as far as it shows in events: the others are only recorded as executed."""

from __future__ import annotations

from tests.standins.gitlab.changes import MAY_CHANGE, Changes
from tests.standins.gitlab.markdown import Command


def apply(changes: Changes, command: Command) -> None:
    """Change the merge request as the command says, if its author may; GitLab drops it without an error otherwise."""
    fields, user = changes.fields, changes.user
    if changes.project.level(user) < MAY_CHANGE and fields["author"].get("id") != user.id:
        return
    match command.name:
        case "close" if fields["state"] == "opened":
            changes.state_to("closed", "close")
        case "reopen" if fields["state"] == "closed":
            changes.state_to("opened", "reopen")
        case "draft" | "ready":
            changes.draft_to(command.name == "draft")
        case "title" if command.argument:
            changes.title_to(command.argument)
        case "label" | "unlabel" if command.argument:
            named = [name.lstrip("~") for name in command.argument.split()]
            kept = [name for name in fields["labels"] if name not in named]
            changes.labels_to(kept + named if command.name == "label" else kept)
