"""Plays the model's part in the demo when there is no key: a fixed way of looking, and no fixed findings.

It answers over Gemini's real wire format and sees only what a model would see: the conversation. Which job failed,
which test, which line: all of that it reads from the results of real tools and of real commands in the sandbox.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hummingbird_ai.testing.replies import Answer, Reply, say
from hummingbird_operator.sessions.prompts import CONTINUATION_PROMPT

LOG = "/tmp/data/failed-job.log"  # noqa: S108 - a path inside the sandbox
LOOK = f"sed -n '/^=====/,$p' {LOG} | head -n 200"
"""Everything from unittest's first report of a failure on, once."""
SHOWN_LINES = 15
"""As many lines of a log as the workflow's prompt allows."""


def analyst(body: dict[str, Any], _: int) -> Reply:
    """The next answer for this conversation: a script of the GeminiServer."""
    if not (body.get("tools") and _tools_allowed(body)):
        return say("I was told to wrap up before I had looked at the log.")
    asked, *more = _questions(body)
    if more:
        return _look_again(more[-1])
    return _investigate(asked, body)


def _investigate(question: Question, body: Mapping[str, Any]) -> Reply:
    """The first question of a conversation: which job failed, its log, what the merge request changes."""
    results, asked = question.results, _first_message(body)
    if "gitlab_get_commit_statuses" not in results:
        arguments = {"commit_sha": asked.get("sha", "")}
        return Answer(calls=(("gitlab_get_mr_details", {}), ("gitlab_get_commit_statuses", arguments)))
    failed = _failed_job(results["gitlab_get_commit_statuses"])
    if failed is None:
        return say("Every job of this commit passed: there is nothing to explain.")
    if "fetch_batch_to_sandbox" not in results:
        job = {"tool": "gitlab_get_job_log", "arguments": {"job_id": failed["job_id"]}, "path": LOG}
        return Answer(calls=(("fetch_batch_to_sandbox", {"requests": [job]}), ("gitlab_get_mr_diff", {})))
    if "sandbox_exec" not in results:
        return Answer(calls=(("sandbox_exec", {"command": LOOK}),))
    report = _report(failed, results["sandbox_exec"], results["gitlab_get_mr_diff"])
    return say(_on_a_question(asked["message"]) + report if asked.get("message") else report)


def _look_again(question: Question) -> Reply:
    """A later one: the log that the sandbox still has, searched for what the question has in backticks."""
    words = re.findall(r"`([^`\n]+)`", question.text) or ["FAIL", "Error"]
    command = f"grep -nF {' '.join(f'-e {shlex.quote(word)}' for word in words)} {LOG} | head -n {SHOWN_LINES}"
    if "sandbox_exec" not in question.results:
        return Answer(calls=(("sandbox_exec", {"command": command}),))
    found = str(question.results["sandbox_exec"].get("stdout", "")).strip()
    named = " or ".join(f"`{word}`" for word in words)
    if not found:
        return say(f"{_on_a_question(question.text)}Nothing in the log that I kept names {named}.")
    return say(f"{_on_a_question(question.text)}Lines of the log that I kept, with {named}:\n\n```text\n{found}\n```\n")


def _on_a_question(text: str) -> str:
    """What a script can honestly say to it."""
    heard = " ".join(text.split())
    return f"You ask: “{heard}” A script cannot think about that; this is what it finds.\n\n"


def _report(failed: Mapping[str, Any], found: Mapping[str, Any], diff: Mapping[str, Any]) -> str:
    """The answer: what the commands printed, quoted, and nothing that a script cannot know."""
    lines = [line for line in str(found.get("stdout", "")).splitlines() if line.strip(" -=")]
    tests = [match[1] for line in lines if (match := re.match(r"(?:FAIL|ERROR): (\w+) \(", line))]
    place = next((match for line in lines if (match := re.search(r'File "([^"]+)", line (\d+)', line))), None)
    error = next((line.strip() for line in lines if re.match(r"\w*(Error|Exception)\b", line.strip())), "no error line")
    where = f"{_relative(place[1])}:{place[2]}" if place else "a place that the log does not name"
    changed = re.findall(r"^\+\+\+ b/(\S+)", str(diff.get("preview", "")), re.MULTILINE)
    named = f"`{tests[0]}`" if tests else "A test that the log does not name"
    others = f" It is the first of {len(tests)} that the log reports." if len(tests) > 1 else ""
    cut = f"\n… {len(lines) - SHOWN_LINES} more lines" if len(lines) > SHOWN_LINES else ""
    quoted = "\n".join(lines[:SHOWN_LINES]) + cut
    return (
        f"**{named} fails at `{where}`: {error}.**{others}\n\n"
        f"### Job [{failed['name']}]({failed['target_url']})\n\n"
        f"From its log:\n\n```text\n{quoted}\n```\n\n"
        f"Files that this merge request changes: {', '.join(f'`{path}`' for path in changed) or 'none'}. "
        "Whether they are the cause is for a reader to judge: a script wrote this, no model.\n"
    )


def _relative(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _first_message(body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        asked = json.loads(body["contents"][0]["parts"][0]["text"])
    except (KeyError, IndexError, ValueError):
        return {}
    return asked if isinstance(asked, dict) else {}


@dataclass
class Question:
    """What a person asked, and what every tool said since, by its name; a later call of the same name wins."""

    text: str
    results: dict[str, dict[str, Any]] = field(default_factory=dict)


def _questions(body: Mapping[str, Any]) -> list[Question]:
    """All of the conversation; at least one."""
    found: list[Question] = []
    for content in body.get("contents", ()):
        parts = content.get("parts", ())
        before, continued, words = "".join(part.get("text", "") for part in parts).partition(CONTINUATION_PROMPT)
        if continued or not found:
            found.append(Question(words.strip() or before))
        for response in (part["functionResponse"] for part in parts if "functionResponse" in part):
            result = response.get("response", {})
            inner = result.get("output", result)
            found[-1].results[response["name"]] = inner if isinstance(inner, dict) else {"text": str(inner)}
    return found


def _failed_job(statuses: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first failed status that must pass, from a result's inline text or preview."""
    for line in str(statuses.get("preview", "")).splitlines():
        try:
            status = json.loads(line)
        except ValueError:
            continue
        if status.get("status") == "failed" and not status.get("allow_failure"):
            address = str(status.get("target_url") or "")
            number = status.get("job_id") or re.sub(r".*/", "", address)
            return {"name": status["name"], "job_id": int(number), "target_url": address}
    return None


def _tools_allowed(body: Mapping[str, Any]) -> bool:
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    return bool(config.get("mode", "AUTO") != "NONE")
