"""`make demo`: from GitLab's event to the agent's note, and on in a thread, on a Kubernetes that is real."""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

import cluster
from demo import evidence, words
from demo.acts import AGENT_RUNS, APP, EXAMPLE, Play, Unexpected
from demo.analyst import analyst
from demo.evidence import Evidence
from demo.place import own_folder
from demo.processes import free_port
from demo.stage import BOT_TOKEN, HOOKS_TOKEN, MODEL_KEY, READ_TOKEN, Ingestor, Names, Operator, Stage
from demo.words import say
from hummingbird_ai.testing import GeminiServer
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.wire import ApiError

NAMES = Names("hummingbird-demo", "hummingbird-demo-sandboxes")
"""Not those of the manifests: in a cluster of yours they may be in use."""
DOLLARS = "0.50"
"""The most that one run may cost."""
POOL = {"replicas": 1, "maxSandboxes": 4, "linger": {"seconds": 300, "max": 2}}
OUTWARDS = ("HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""What processes may need of our environment to reach the real model."""
TROUBLE = (Unexpected, RuntimeError, TimeoutError, OSError, subprocess.SubprocessError, cluster.ClusterError, ApiError)


def main() -> int:
    """Exit status 0 only if every act came out as it should."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--remove", action="store_true", help="only take away what an earlier demo left")
    remove = parser.parse_args().remove
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with own_folder() as folder:
            return away(folder) if remove else play(folder, os.environ)
    except TROUBLE as error:
        say(f"FAILED {error}")
        return 1
    except KeyboardInterrupt:
        say("ended in the middle; the next demo clears what is left")
        return 130


def _end(number: int, _: FrameType | None) -> None:
    say("ended in the middle; the next demo clears what is left")
    sys.exit(128 + number)


def away(folder: Path) -> int:
    """Namespaces, ClusterRole and folder of an earlier demo; what is of use to others stays."""
    stage, namespaces = (
        Stage(cluster.find(), folder, NAMES),
        (f"namespace/{NAMES.runs}", f"namespace/{NAMES.sandboxes}"),
    )
    stage.uninstall()
    stage.kubectl("wait", "--for=delete", *namespaces, "--timeout=90s")
    shutil.rmtree(folder)
    say(f"namespaces {NAMES.runs} and {NAMES.sandboxes} are gone; CRDs and the cluster stay")
    return 0


def play(folder: Path, environ: Mapping[str, str]) -> int:
    """The whole of it; without GOOGLE_API_KEY a script plays the model."""
    key = environ.get("GOOGLE_API_KEY", "").strip()
    say(words.beginning(scripted=not key, runs=AGENT_RUNS, dollars=DOLLARS))
    found, proof = cluster.up(), evidence.run_tests()
    if proof.exit_status == 0:
        say("the example project's tests pass: there is no failure to look into")
        return 1
    tokens = {"GITLAB_TOKEN": BOT_TOKEN, "READ_TOKEN": READ_TOKEN, "HOOKS_TOKEN": HOOKS_TOKEN}
    stage = Stage(found, folder, NAMES, tokens | {"GOOGLE_API_KEY": key or MODEL_KEY})
    if key:
        outwards = {name: environ[name] for name in OUTWARDS if name in environ}
        stage.environ |= outwards | {"NO_PROXY": f"127.0.0.1,localhost,{environ.get('NO_PROXY', '')}"}
    failure = _play(stage, proof, scripted=not key)
    if not failure:
        say("what is real here, and what stands in:")
        print(words.reality(found, scripted=not key, exit_status=proof.exit_status, folder=folder))
    say(f"logs and what was stored:\n{words.logs(folder)}")
    say(words.left_behind(found, NAMES, folder))
    if failure:
        say(f"FAILED {failure}")
    return 1 if failure else 0


def _play(stage: Stage, proof: Evidence, *, scripted: bool) -> str:
    """Set the stage and play; what went wrong, and where, or nothing."""
    acting: Play | None = None
    try:
        with ExitStack() as stack:
            gitlab = stack.enter_context(GitLabStandIn(fixture(proof)))
            model = stack.enter_context(GeminiServer(analyst, api_key=MODEL_KEY)) if scripted else None
            operator = start(stage, stack, gitlab, model.url if model else "")
            acting = Play(stage, gitlab, operator, scripted=scripted)
            acting.all()
            show(stage, acting, scripted=scripted)
    except TROUBLE as error:
        where = f"where “{acting.act}”" if acting else "before the first act"
        return f"{where}: {error or type(error).__name__}"
    return ""


def fixture(proof: Evidence) -> dict[str, Any]:
    """GitLab at the beginning: a public project, for elsewhere a guest sees no merge request."""
    data = evidence.fixture(proof, bot=BOT_TOKEN, reader=READ_TOKEN, maintainer=HOOKS_TOKEN)
    data["projects"][0]["visibility"] = "public"
    return data


def start(stage: Stage, stack: ExitStack, gitlab: GitLabStandIn, model: str) -> Operator:
    """Configure and install everything, make the webhook in GitLab, start both processes until they are ready."""
    port = free_port()
    secret = base64.b64encode(secrets.token_bytes(32)).decode()
    stage.environ["HOOK_SECRET"] = f"whsec_{secret}"
    stage.configure(yaml.safe_dump(config(gitlab.url, model, stage, port), sort_keys=False))
    say("away with what an earlier demo left; then CRDs, namespaces, Roles, a pool, and both processes")
    stage.sweep()
    stage.install(pool=POOL)
    operator = stage.start()
    stack.callback(operator.stop)
    ingestor: Ingestor = stage.ingest("webhook", "ingest-webhook", port=port)
    stack.callback(ingestor.stop)
    say(f"hummingbird webhook-setup\n  {stage.hummingbird('webhook-setup', '--config', 'config.yaml').strip()}")
    ingestor.wait_until_ready()
    operator.wait_until_ready()
    operator.wait_until_leading()
    return operator


def config(gitlab: str, model: str, stage: Stage, port: int) -> dict[str, Any]:
    """config.yaml; an empty `model` asks the real one."""
    models = {"default": "gemini-3.8-flash", "google_api_key_env": "GOOGLE_API_KEY"}
    return {
        "gitlab": {
            "url": gitlab,
            "token_env": "GITLAB_TOKEN",
            "hooks_token_env": "HOOKS_TOKEN",
            "webhook_secret_env": ["HOOK_SECRET"],
        },
        "models": models | ({"endpoint": model} if model else {}),
        "sessions": {"store": f"file://{stage.folder / 'store'}"},
        "limits": {"max_cost_usd": DOLLARS, "max_iterations": 15, "run_timeout_seconds": 240, "retry_seconds": 60},
        "sandbox": {"pool": "default", "namespace": stage.names.sandboxes},
        "ingest": {"webhook_url": f"http://127.0.0.1:{port}/webhooks/gitlab"},
        "projects": {APP: {"tokens": {"gitlab": "READ_TOKEN"}}},
        "workflows": {
            "analyze-failures": {
                "description": "Explain why the pipeline failed",
                "prompt": "workflows/analyze-failures.md",
                "action": "pipeline",
                "data_sources": {"gitlab": {}},
            }
        },
    }


def show(stage: Stage, played: Play, *, scripted: bool) -> None:
    """What a user looks at afterwards."""
    print(flush=True)
    say(f"kubectl get agentruns -n {stage.names.runs}")
    print(stage.kubectl("get", "agentruns", "-n", stage.names.runs, "--sort-by=.metadata.creationTimestamp"), end="")
    say(words.on_the_costs(sum(played.spent), scripted=scripted))
    name = yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"]
    say(f"the processes and the stand-ins end now. Look around:\n{words.look_around(stage.cluster, NAMES, name)}")


if __name__ == "__main__":
    sys.exit(main())
