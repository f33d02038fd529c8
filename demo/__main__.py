"""`make demo`: one AgentRun on a failure that really happened, on a Kubernetes that is real."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import cluster
from demo import evidence, words
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
    data_sources: {{gitlab: {{}}}}
"""


def main() -> int:
    """Exit status 0 only if the run Succeeded and its note is there."""
    with own_folder() as folder:
        return play(folder, os.environ.get("GOOGLE_API_KEY", "").strip())


@contextmanager
def own_folder() -> Iterator[Path]:
    """`hummingbird-demo` in the folder for temporary files: empty, for us alone, and left as it is afterwards."""
    folder = Path(tempfile.gettempdir()) / "hummingbird-demo"
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"demo: another demo uses {folder}; wait for it, or set TMPDIR")
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        yield folder


def play(folder: Path, key: str) -> int:
    """The whole of it; an empty key lets the script play the model."""
    found = cluster.up()
    proof = evidence.run_tests()
    say("what is real here, and what stands in:")
    print(words.introduction(found, scripted=not key, exit_status=proof.exit_status, folder=folder), flush=True)
    if proof.exit_status == 0:
        say("the example project's tests pass: there is no failure to look into")
        return 1
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
        say(f"the operator leads; its log is {operator.log}")
        wait_for(lambda: not stage.kubectl("get", "agentrun", RUN, "-n", "hummingbird", "--ignore-not-found"), 60, str)
        stage.kubectl("apply", "-f", str(ROOT / "examples" / "agentrun.yaml"))
        say("kubectl apply -f examples/agentrun.yaml")
        succeeded = follow(stage, operator)
        return show(stage, gitlab, succeeded, scripted=not key)


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


def show(stage: Stage, gitlab: GitLabStandIn, succeeded: bool, *, scripted: bool) -> int:
    """What a user looks at afterwards."""
    say("kubectl get agentruns -n hummingbird")
    print(stage.kubectl("get", "agentruns", "-n", "hummingbird"), end="")
    session = stage.get("agentrun", RUN)["status"].get("session", {})
    notes = gitlab.state.dump()["notes"]["group/app!42"]
    say(f"the stand-in for GitLab has {len(notes)} note(s) on group/app!42:")
    for note in notes:
        text = words.without_transcript(note["body"], session.get("transcript", "nowhere"))
        print("\n".join(f"  | {line}".rstrip() for line in text.splitlines()))
    say(words.on_the_note(scripted=scripted))
    say(f"session and journal: {stage.folder / 'store'}")
    say("the operator and the stand-ins end now. Look around:")
    print(words.look_around(stage.cluster, RUN))
    say(words.left_behind(stage.cluster, stage.folder))
    return 0 if succeeded and len(notes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
