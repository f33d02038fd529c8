"""GitLab's list of changed files (`/merge_requests/:iid/diffs`) as one unified diff.

Above its limits GitLab sends an empty `diff` with `collapsed` or `too_large`; the model must hear of it, or it would
take the file for unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hummingbird_operator.errors import Invalid, NotFound, Unavailable


def unified_diff(
    first: dict[str, Any] | None, rows: Iterator[dict[str, Any]], metadata: dict[str, Any]
) -> Iterator[bytes]:
    """One piece for each file. Fills `files` and `incomplete` of `metadata`: hidden files, a list that broke off."""
    try:
        row = first
        while row is not None:
            metadata["files"] += 1
            yield _file_diff(row, metadata["incomplete"])
            row = next(rows, None)
    except (Unavailable, NotFound, Invalid) as error:
        metadata["incomplete"].append(f"only the first {metadata['files']} files are here: {error}")


def _file_diff(row: dict[str, Any], incomplete: list[str]) -> bytes:
    old, new = row.get("old_path", ""), row.get("new_path", "")
    head = [f"diff --git a/{old} b/{new}"]
    head += [f"new file mode {row.get('b_mode')}"] if row.get("new_file") else []
    head += [f"deleted file mode {row.get('a_mode')}"] if row.get("deleted_file") else []
    head += [f"rename from {old}", f"rename to {new}"] if row.get("renamed_file") else []
    text = row.get("diff") or ""
    hidden = "too large" if row.get("too_large") else "collapsed" if row.get("collapsed") else ""
    if hidden and not text:
        incomplete.append(f"{new}: {hidden}, GitLab does not show its diff; read it with gitlab_get_file_at_ref")
        head.append(f"# not shown by GitLab: {hidden}")
    elif text:
        head += ["--- /dev/null" if row.get("new_file") else f"--- a/{old}"]
        head += ["+++ /dev/null" if row.get("deleted_file") else f"+++ b/{new}"]
    return ("\n".join(head) + "\n" + text + ("" if not text or text.endswith("\n") else "\n")).encode()
