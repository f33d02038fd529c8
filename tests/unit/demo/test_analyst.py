"""The script that plays the model's part: its findings come from the conversation, and it claims nothing else."""

from __future__ import annotations

import json
from typing import Any

from demo.analyst import LOG, SHOWN_LINES, analyst
from hummingbird_ai.testing import Answer
from hummingbird_operator.sessions.prompts import CONTINUATION_PROMPT

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


def said(log: str, **asked: str) -> str:
    results = {
        "gitlab_get_commit_statuses": {"preview": json.dumps(STATUS)},
        "fetch_batch_to_sandbox": {},
        "gitlab_get_mr_diff": {"preview": DIFF},
        "sandbox_exec": {"stdout": log},
    }
    parts: list[dict[str, Any]] = [
        {"functionResponse": {"name": name, "response": {"output": result}}} for name, result in results.items()
    ]
    first = {"role": "user", "parts": [{"text": json.dumps({"sha": "4be1", **asked})}]}
    return answered([first, {"role": "user", "parts": parts}]).text


def answered(contents: list[dict[str, Any]]) -> Answer:
    reply = analyst({"tools": [{}], "contents": contents}, 3)
    assert isinstance(reply, Answer)
    return reply


def replied(words: str, *results: str) -> Answer:
    """To a reply, after an earlier answer and with what the command printed."""
    earlier = [{"role": "user", "parts": [{"text": "{}"}]}, {"role": "model", "parts": [{"text": "It broke."}]}]
    reply = {"role": "user", "parts": [{"text": f"{CONTINUATION_PROMPT}\n\n{words}"}]}
    found = [{"functionResponse": {"name": "sandbox_exec", "response": {"stdout": text}}} for text in results]
    return answered([*earlier, reply, *({"role": "user", "parts": [part]} for part in found)])


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


def test_a_question_is_repeated_and_not_answered_as_if_a_script_could_think() -> None:
    report = said(FAILURE.format(2), message="why 1\nand not 2?")
    assert report.startswith("You ask: “why 1 and not 2?” A script cannot think about that")
    assert "`test_2` fails" in report


def test_a_reply_has_the_kept_log_searched_for_what_it_names() -> None:
    ((name, arguments),) = replied("Does `it's off` or `test_2` pass?").calls
    assert name == "sandbox_exec"
    assert arguments["command"] == f"grep -nF -e 'it'\"'\"'s off' -e test_2 {LOG} | head -n {SHOWN_LINES}"
    answer = replied("Does `test_2` pass?", "3:test_2 ... ok\n").text
    assert answer.startswith("You ask: “Does `test_2` pass?”")
    assert "```text\n3:test_2 ... ok\n```" in answer
    assert "Nothing in the log that I kept names `test_3`." in replied("And `test_3`?", "").text
