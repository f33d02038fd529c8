"""The script that plays the model's part: its findings come from the conversation, and it claims nothing else."""

from __future__ import annotations

import json
from typing import Any

from demo.analyst import SHOWN_LINES, analyst
from hummingbird_ai.testing import Answer

URL = "https://gitlab.example.com/group/app/-/jobs/9"
STATUS = {"name": "unit tests", "status": "failed", "allow_failure": False, "job_id": 9, "target_url": URL}
DIFF = "+++ b/shop/basket.py\n"
FAILURE = """======
FAIL: test_{0} (tests.T.test_{0})
------
Traceback (most recent call last):
  File "/builds/app/tests/test_{0}.py", line 7, in test_{0}
AssertionError: 1 != {0}
"""


def said(log: str) -> str:
    results = {
        "gitlab_get_commit_statuses": {"preview": json.dumps(STATUS)},
        "fetch_batch_to_sandbox": {},
        "gitlab_get_mr_diff": {"preview": DIFF},
        "sandbox_exec": {"stdout": log},
    }
    parts: list[dict[str, Any]] = [
        {"functionResponse": {"name": name, "response": {"output": result}}} for name, result in results.items()
    ]
    asked = {"parts": [{"text": json.dumps({"sha": "4be1"})}]}
    reply = analyst({"tools": [{}], "contents": [asked, {"parts": parts}]}, 3)
    assert isinstance(reply, Answer)
    return str(reply.text)


def test_the_report_links_the_job_and_quotes_each_line_of_the_log_once() -> None:
    report = said(FAILURE.format(2) + "FAILED (failures=1)\nERROR: Job failed: exit code 1\n")
    assert f"[unit tests]({URL})" in report
    assert "**`test_2` fails at `tests/test_2.py:7`: AssertionError: 1 != 2.**" in report
    assert report.count("FAILED (failures=1)") == report.count("Job failed") == 1
    assert "a script wrote this" in report


def test_several_failures_are_counted_and_a_long_log_is_cut_with_a_word() -> None:
    report = said("".join(FAILURE.format(number) for number in range(6)))
    assert "the first of 6" in report
    assert f"… {6 * 4 - SHOWN_LINES} more lines" in report


def test_a_log_that_names_nothing_is_not_given_a_cause() -> None:
    assert "does not name" in said("make: *** [all] Error 2\n")
