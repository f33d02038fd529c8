"""Notes and discussions as the API shows them (`lib/api/entities/{note,discussion}.rb`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.standins.gitlab.records import MergeRequest, Note, Project


def note(project: Project, merge_request: MergeRequest, found: Note) -> dict[str, Any]:
    """One note; only one of a thread says whether it is resolved, only one on the diff has a position."""
    shown: dict[str, Any] = {
        "id": found.id,
        "type": found.type,
        "body": found.body,
        "author": found.author.public(),
        "created_at": found.created_at,
        "updated_at": found.updated_at,
        "system": found.system,
        "noteable_id": merge_request.fields["id"],
        "noteable_type": "MergeRequest",
        "project_id": project.id,
        "noteable_iid": merge_request.iid,
        "resolvable": found.resolvable,
        "confidential": found.internal,
        "internal": found.internal,
    }
    if found.position is not None:
        shown["position"] = found.position
    if found.resolvable:
        by = found.resolved_by.public() if found.resolved_by else None
        shown |= {"resolved": found.resolved, "resolved_by": by, "resolved_at": found.resolved_at}
    return shown


def discussion(project: Project, merge_request: MergeRequest, notes: Sequence[Note]) -> dict[str, Any]:
    """A discussion with the notes that its reader may see."""
    return {
        "id": notes[0].discussion_id,
        "individual_note": len(notes) == 1 and notes[0].type is None,
        "notes": [note(project, merge_request, one) for one in notes],
    }
