"""The demo's failure is a true one: a small project's tests run and fail, and their output becomes the job's log."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent / "project"
SHA = "4be1c0de" * 5
JOB, PIPELINE = 7301, 900
MEMBERS = {"1": 30, "2": 20, "7": 30, "9": 40, "11": 30, "12": 10}
"""Access levels by user: the bot and its reader, Alice and Bob (Developers), Maya (Maintainer), Gwen (Guest)."""
BEFORE = "        return full * (100 - discount_percent) // 100\n"
"""The line that the merge request replaced: exact, where the new one rounds too early."""


@dataclass(frozen=True)
class Evidence:
    """What the suite printed, and how it ended."""

    log: str
    exit_status: int


def run_tests() -> Evidence:
    """Run the project's test suite for real."""
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "discover", "-v"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    command = "$ python3 -m unittest discover -v\n"
    closing = f"ERROR: Job failed: exit code {done.returncode}\n" if done.returncode else "Job succeeded\n"
    return Evidence(command + done.stdout + done.stderr + closing, done.returncode)


def people(*, bot: str, reader: str, maintainer: str) -> list[dict[str, Any]]:
    """Who is there, with the tokens that programs use in their names."""
    return [
        {"id": 1, "username": "hummingbird-bot", "tokens": {bot: ["api"]}},
        {"id": 2, "username": "hummingbird-reader", "tokens": {reader: ["read_api"]}},
        {"id": 7, "username": "alice", "tokens": {"alice-token": ["api"]}},
        {"id": 9, "username": "maya", "tokens": {maintainer: ["api"]}},
        {"id": 11, "username": "bob"},
        {"id": 12, "username": "gwen"},
    ]


def fixture(evidence: Evidence, *, bot: str, reader: str, maintainer: str = "maintainer-token") -> dict[str, Any]:
    """The merge request, its failed job and its files, as GitLab would have them."""
    files = {str(path.relative_to(PROJECT)): path.read_text() for path in PROJECT.rglob("*.py")}
    new = files["shop/basket.py"].splitlines(keepends=True)
    old = [BEFORE if "full // 100" in line else line for line in new]
    diff = "".join(list(difflib.unified_diff(old, new))[2:])
    url = "https://gitlab.example.com/group/app"
    statuses = [
        {
            "id": JOB - 1,
            "name": "lint",
            "status": "success",
            "allow_failure": False,
            "target_url": f"{url}/-/jobs/{JOB - 1}",
        },
        {
            "id": JOB,
            "name": "unit tests",
            "status": "failed",
            "allow_failure": False,
            "target_url": f"{url}/-/jobs/{JOB}",
        },
    ]
    pipeline = {"id": PIPELINE, "iid": 1, "sha": SHA, "status": "failed", "ref": "topic"}
    pipeline |= {"source": "merge_request_event", "web_url": f"{url}/-/pipelines/{PIPELINE}"}
    merge_request = {
        "iid": 42,
        "sha": SHA,
        "title": "Compute discounts with whole hundreds",
        "author": {"id": 7, "username": "alice"},
        "head_pipeline": pipeline,
        "pipelines": [pipeline],
        "diffs": [{"old_path": "shop/basket.py", "new_path": "shop/basket.py", "diff": diff}],
    }
    return {
        "users": people(bot=bot, reader=reader, maintainer=maintainer),
        "projects": [
            {
                "id": 10,
                "path": "group/app",
                "members": MEMBERS,
                "merge_requests": [merge_request],
                "statuses": {
                    SHA: [{**status, "sha": SHA, "ref": "topic", "pipeline_id": PIPELINE} for status in statuses]
                },
                "jobs": {str(JOB): {"name": "unit tests", "status": "failed", "log": evidence.log}},
                "files": {SHA: files},
            }
        ],
    }
