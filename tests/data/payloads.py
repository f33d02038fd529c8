"""GitLab's webhook payloads: samples of Debian's golang-github-xanzy-go-gitlab-dev (Apache-2.0), fetched by make."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cluster.paths import cache_root

FOLDER = "usr/share/gocode/src/github.com/xanzy/go-gitlab/testdata/webhooks"


@cache
def webhooks() -> dict[str, dict[str, Any]]:
    """The payloads by their file's name without .json, not to be changed. Fails where they were not fetched."""
    folder = cache_root() / "gitlab-payloads" / FOLDER
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise RuntimeError(f"GitLab's sample payloads are not in {folder}: run `make payloads`, which fetches them")
    return found
