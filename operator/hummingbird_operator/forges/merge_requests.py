"""GitLab's words about merge requests that several parts decide by."""

from __future__ import annotations

import re

SHUT = frozenset({"closed", "merged", "locked"})
"""States of a merge request in which nothing starts by itself on it."""
GENERATED_REF = re.compile(r"refs/merge-requests/\d+/(?:merge|train)")
"""Refs of a commit that GitLab made (merged results, a train): its SHA is none of the merge request's own."""
