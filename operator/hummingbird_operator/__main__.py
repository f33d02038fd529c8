"""The command `hummingbird`: reads the command line and the environment, and hands values down."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hummingbird_operator import checking, leader, settings, wiring, workflows
from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.errors import HummingbirdError, Invalid
from hummingbird_operator.ingest import serve
from hummingbird_operator.ingest.hooks import setup
from hummingbird_operator.problems import masked
from hummingbird_operator.telemetry import configure_logging

EXIT_DIFFERENT = 1
"""A hook is not as it must be."""
EXIT_INVALID = 2
"""A person must mend something; starting again will not help."""


def main(argv: Sequence[str] | None = None, *, around: wiring.Around = wiring.as_it_is) -> int:
    """Entry point; the exit status is 0 after an orderly end, 2 where a person must mend something.

    1 is `webhook-setup` saying that a hook is not as it must be. `around` is for tests that kill or freeze a real
    process: see wiring.Around.
    """
    arguments = _parser().parse_args(argv)
    try:
        loaded = settings.load(arguments.config, os.environ)
        prompts = workflows.load(loaded)
        match arguments.command:
            case "check":
                return _check(loaded, prompts, arguments)
            case "webhook-setup":
                return _webhook_setup(loaded, arguments)
            case "operator":
                wiring.check(loaded, prompts)
                wiring.apart(loaded, _namespace(arguments, os.environ))
            case "ingest":
                serve.check(loaded, arguments.transport)
        _prepare(loaded, arguments.log_level)
        asyncio.run(_process(loaded, prompts, arguments, around))
    except HummingbirdError as error:
        print(f"hummingbird: {masked(str(error))}", file=sys.stderr)
        return EXIT_INVALID
    return 0


def _process(
    loaded: settings.Settings, prompts: workflows.Workflows, arguments: argparse.Namespace, around: wiring.Around
) -> Coroutine[Any, Any, None]:
    """What runs until SIGTERM."""
    if arguments.command == "operator":
        return leader.operate(loaded, prompts, _options(arguments, os.environ), around=around)
    options = serve.Options(
        namespace=_namespace(arguments, os.environ),
        kubeconfig=_kubeconfig(arguments, os.environ),
        context=arguments.context,
        health_port=arguments.health_port,
        port=getattr(arguments, "port", 0),
    )
    serving = serve.serve_webhook if arguments.transport == "webhook" else serve.serve_sqs
    return serving(loaded, prompts, options)


def _prepare(loaded: settings.Settings, log_level: str) -> None:
    configure_logging(level=log_level, secrets=partial(wiring.secrets, loaded))
    _calm_collector()


def _calm_collector() -> None:
    """Full collections walk over every object of every run and hold the loop meanwhile: with 200 runs, for up to a

    second. What was loaded until now lives as long as the process, and is never walked over again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _check(loaded: settings.Settings, prompts: workflows.Workflows, arguments: argparse.Namespace) -> int:
    """Everything that can be known without a cluster: all faults, not only the first. Secrets of `--for`, or of all."""
    process: checking.Process | None = arguments.for_process
    wiring.served(loaded, prompts)
    gone, doubts, faults = checking.missing(loaded, process), checking.warnings(loaded), checking.faults(loaded)
    for sentence in [*doubts, *(gone if arguments.without_secrets else [])]:
        print(f"warning: {masked(sentence)}", file=sys.stderr)
    for sentence in faults if arguments.without_secrets else [*faults, *gone]:
        print(f"hummingbird: {masked(sentence)}", file=sys.stderr)
    if faults or (gone and not arguments.without_secrets) or (doubts and arguments.strict):
        return EXIT_INVALID
    if not gone:
        _check_process(loaded, prompts, process)
    print(f"{loaded.path}: ok, workflows: {', '.join(sorted(prompts.by_name))}")
    return 0


def _check_process(loaded: settings.Settings, prompts: workflows.Workflows, process: checking.Process | None) -> None:
    """What the process looks at when it starts. Without a name: the operator's, for nobody needs both ingestors."""
    if process in (None, "operator"):
        wiring.check(loaded, prompts)
    else:
        serve.check(loaded, process.removeprefix("ingest-"))


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _webhook_setup(loaded: settings.Settings, arguments: argparse.Namespace) -> int:
    """A line for each project; 1 where a hook is not as it must be, then or now."""
    url = setup.hook_url(loaded, arguments.url, _warn)
    projects = setup.chosen(loaded, arguments.project, _warn)
    secret = _hook_secret(loaded, check=arguments.check)
    with contextlib.closing(serve.hooks_of(loaded)) as hooks:
        right = True
        for line in setup.Setup(hooks, url, secret, arguments.check).each(projects):
            print(line, flush=True)
            right = right and line.right
    return 0 if right else EXIT_DIFFERENT


def _hook_secret(loaded: settings.Settings, *, check: bool) -> str:
    """The first one: while a secret is rotated, that is the new one. A check does without, and compares less."""
    try:
        return loaded.new_webhook_secret()
    except Invalid:
        if check:
            return ""
        raise


def _namespace(arguments: argparse.Namespace, environ: Mapping[str, str]) -> str:
    return arguments.namespace or environ.get("HUMMINGBIRD_NAMESPACE") or "hummingbird"


def _kubeconfig(arguments: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    return arguments.kubeconfig or environ.get("KUBECONFIG") or None


def _options(arguments: argparse.Namespace, environ: Mapping[str, str]) -> leader.Options:
    return leader.Options(
        namespace=_namespace(arguments, environ),
        identity=environ.get("HUMMINGBIRD_IDENTITY") or socket.gethostname(),
        kubeconfig=_kubeconfig(arguments, environ),
        context=arguments.context,
        health_port=arguments.health_port,
    )


def _parser() -> argparse.ArgumentParser:
    statuses = (
        "exit status: 0 all is well, or an orderly end; 1 a hook is not right (webhook-setup); 2 a person must mend "
        "what is said on stderr, starting again will not help (check, operator, ingest, webhook-setup)"
    )
    parser = argparse.ArgumentParser(
        prog="hummingbird", description="LLM agents as Kubernetes objects.", epilog=statuses
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, default=Path("config.yaml"), help="configuration file (%(default)s)")
    process = argparse.ArgumentParser(add_help=False, parents=[common])
    process.add_argument("--namespace", help="namespace of the runs ($HUMMINGBIRD_NAMESPACE, else hummingbird)")
    process.add_argument("--kubeconfig", help="outside of a cluster ($KUBECONFIG)")
    process.add_argument("--context", help="context of the kubeconfig")
    process.add_argument("--health-port", type=int, default=8080, help="/healthz, /readyz, /metrics (%(default)s)")
    process.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    check = commands.add_parser("check", parents=[common], help="say whether the configuration is right, and end")
    check.add_argument("--without-secrets", action="store_true", help="only warn about secrets that are not there")
    check.add_argument("--strict", action="store_true", help="exit status 2 for warnings, too; not for absent secrets")
    check.add_argument(
        "--for", dest="for_process", choices=checking.PROCESSES, help="only the secrets of this process (else of all)"
    )
    commands.add_parser("operator", parents=[process], help="serve AgentRuns and SandboxPools")
    ingest = commands.add_parser("ingest", help="make AgentRuns of events")
    transports = ingest.add_subparsers(dest="transport", required=True, metavar="TRANSPORT")
    transports.add_parser("sqs", parents=[process], help="take events from the queue ingest.queue_url")
    webhook = transports.add_parser("webhook", parents=[process], help=f"take events at POST {HOOK_PATH}")
    webhook.add_argument("--port", type=int, default=8081, help="port for webhooks, plain HTTP (%(default)s)")
    hook = commands.add_parser("webhook-setup", parents=[common], help="make, mend or check the hooks of projects")
    hook.add_argument(
        "--project", action="append", default=[], help="such as group/app, repeatable; else all that projects names"
    )
    hook.add_argument("--check", action="store_true", help="only look; exit status 1 where a hook is not right")
    hook.add_argument("--url", help="public address of the webhook (else ingest.webhook_url)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
