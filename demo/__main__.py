"""`make demo`: one AgentRun on a failure that really happened, on a Kubernetes that is real."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import cluster
from demo import evidence
from demo.analyst import analyst
from demo.stage import BOT_TOKEN, MODEL_KEY, READ_TOKEN, ROOT, Operator, Stage, wait_for
from hummingbird_ai.testing import GeminiServer
from tests.standins.gitlab import GitLabStandIn

RUN = "why-did-it-fail"
CONFIG = """
gitlab: {{url: "{gitlab}", token_env: GITLAB_TOKEN}}
models: {{default: gemini-3.8-flash, google_api_key_env: GOOGLE_API_KEY{endpoint}}}
sessions: {{store: "file://{store}"}}
sandbox: {{backend: k8spool, pool: default, namespace: hummingbird-sandboxes}}
projects: {{group/app: {{tokens: {{gitlab: READ_TOKEN}}}}}}
workflows:
  analyze-failures:
    description: Explain why the pipeline failed
    prompt: workflows/analyze-failures.md
    action: pipeline
    data_sources: {{gitlab: {{}}}}
"""


def main() -> int:
    """Exit status 0 only if the run Succeeded and its note is there."""
    key = os.environ.get("GOOGLE_API_KEY", "").strip()
    say("the model: " + ("the real Gemini (GOOGLE_API_KEY is set)" if key else SCRIPTED))
    found = cluster.up()
    say(f"the cluster: {found.provider} ({found.reason})")
    proof = evidence.run_tests()
    say(f"the failure: the example project's tests ran and ended with status {proof.exit_status}")
    if proof.exit_status == 0:
        say("the example project's tests pass: there is no failure to look into")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="hummingbird-demo-"))
    with ExitStack() as stack:
        gitlab = stack.enter_context(GitLabStandIn(evidence.fixture(proof, bot=BOT_TOKEN, reader=READ_TOKEN)))
        gemini = None if key else stack.enter_context(GeminiServer(analyst, api_key=MODEL_KEY))
        stage = Stage(found, folder)
        stage.environ = {"GITLAB_TOKEN": BOT_TOKEN, "READ_TOKEN": READ_TOKEN, "GOOGLE_API_KEY": key or MODEL_KEY}
        endpoint = f', endpoint: "{gemini.url}"' if gemini else ""
        stage.configure(CONFIG.format(gitlab=gitlab.url, endpoint=endpoint, store=folder / "store"))
        stage.install()
        stage.kubectl("delete", "agentrun", RUN, "-n", "hummingbird", "--ignore-not-found", "--wait=false")
        operator = stack.enter_context(stage.operator())
        operator.wait_until_leading()
        say(f"the operator: leading, its log is {operator.log}")
        wait_for(lambda: not stage.kubectl("get", "agentrun", RUN, "-n", "hummingbird", "--ignore-not-found"), 60, str)
        stage.kubectl("apply", "-f", str(ROOT / "examples" / "agentrun.yaml"))
        say("kubectl apply -f examples/agentrun.yaml")
        succeeded = follow(stage, operator)
        return show(stage, gitlab, succeeded)


SCRIPTED = (
    "a script (no GOOGLE_API_KEY). It speaks Gemini's real wire format over HTTP and looks into the log with real "
    "commands in the sandbox, but it is not a model: its way of looking is fixed"
)


def say(text: str) -> None:
    """One line of progress."""
    print(f"demo: {text}", flush=True)


def follow(stage: Stage, operator: Operator) -> bool:
    """Print one line per turn until the run is Finished; whether it Succeeded."""
    seen = 0
    end = time.monotonic() + 300
    while time.monotonic() < end:
        lines = operator.log.read_text(errors="replace").splitlines()
        for line in lines[seen:]:
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("run") == RUN and "turn" in entry:
                print(f"  {entry['message']}", flush=True)
        seen = len(lines)
        status = stage.get("agentrun", RUN).get("status", {})
        found = {condition["type"]: condition for condition in status.get("conditions", [])}
        if found.get("Finished", {}).get("status") == "True":
            return bool(found["Succeeded"]["status"] == "True")
        time.sleep(0.3)
    say(f"the run did not finish in time; the operator's log ends with:\n{operator.tail()}")
    return False


def show(stage: Stage, gitlab: GitLabStandIn, succeeded: bool) -> int:
    """What a user looks at afterwards."""
    print(stage.kubectl("get", "agentruns", "-n", "hummingbird", "-o", "wide"))
    notes = gitlab.state.dump()["notes"]["group/app!42"]
    say(f"GitLab has {len(notes)} note(s) on group/app!42:")
    for note in notes:
        print("\n".join(f"  | {line}" for line in note["body"].splitlines()))
    session = stage.get("agentrun", RUN)["status"].get("session", {})
    say(f"session: {session.get('uri')}")
    say(f"transcript: {session.get('transcript')}")
    say("the cluster stays up; end it with: make cluster-down")
    return 0 if succeeded and len(notes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
