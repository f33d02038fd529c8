"""The command `hummingbird`: reads the command line and the environment, and hands values down."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from hummingbird_operator import leader, settings, wiring, workflows
from hummingbird_operator.errors import HummingbirdError
from hummingbird_operator.telemetry import configure_logging

EXIT_INVALID = 2
"""A person must mend something; starting again will not help."""


def main(argv: Sequence[str] | None = None, *, around: wiring.Around = wiring.as_it_is) -> int:
    """Entry point; the exit status is 0 after an orderly end, 2 where a person must mend something.

    `around` is for tests that kill or freeze a real process: see wiring.Around.
    """
    arguments = _parser().parse_args(argv)
    try:
        loaded = settings.load(arguments.config, os.environ)
        prompts = workflows.load(loaded)
        if arguments.command == "check":
            return _check(loaded, prompts, without_secrets=arguments.without_secrets)
        wiring.check(loaded, prompts)
        configure_logging(level=arguments.log_level, secrets=partial(wiring.secrets, loaded))
        _calm_collector()
        asyncio.run(leader.operate(loaded, prompts, _options(arguments, os.environ), around=around))
    except HummingbirdError as error:
        print(f"hummingbird: {error}", file=sys.stderr)
        return EXIT_INVALID
    return 0


def _calm_collector() -> None:
    """Full collections walk over every object of every run and hold the loop meanwhile: with 200 runs, for up to a

    second. What was loaded until now lives as long as the process, and is never walked over again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _check(loaded: settings.Settings, prompts: workflows.Workflows, *, without_secrets: bool) -> int:
    """Everything that can be known without a cluster; secrets that are not there are all named, not only the first."""
    wiring.served(loaded, prompts)
    gone = wiring.missing(loaded)
    for sentence in gone:
        print(f"{'warning' if without_secrets else 'hummingbird'}: {sentence}", file=sys.stderr)
    if gone and not without_secrets:
        return EXIT_INVALID
    if not gone:
        wiring.check(loaded, prompts)
    print(f"{loaded.path}: ok, workflows: {', '.join(sorted(prompts.by_name))}")
    return 0


def _options(arguments: argparse.Namespace, environ: Mapping[str, str]) -> leader.Options:
    return leader.Options(
        namespace=arguments.namespace or environ.get("HUMMINGBIRD_NAMESPACE") or "hummingbird",
        identity=environ.get("HUMMINGBIRD_IDENTITY") or socket.gethostname(),
        kubeconfig=arguments.kubeconfig or environ.get("KUBECONFIG") or None,
        context=arguments.context,
        health_port=arguments.health_port,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hummingbird", description="LLM agents as Kubernetes objects.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, default=Path("config.yaml"), help="configuration file (%(default)s)")
    check = commands.add_parser("check", parents=[common], help="say whether the configuration is right, and end")
    check.add_argument("--without-secrets", action="store_true", help="only warn about secrets that are not there")
    operator = commands.add_parser("operator", parents=[common], help="serve AgentRuns and SandboxPools")
    operator.add_argument("--namespace", help="namespace of the runs ($HUMMINGBIRD_NAMESPACE, else hummingbird)")
    operator.add_argument("--kubeconfig", help="outside of a cluster ($KUBECONFIG)")
    operator.add_argument("--context", help="context of the kubeconfig")
    operator.add_argument("--health-port", type=int, default=8080, help="/healthz, /readyz, /metrics (%(default)s)")
    operator.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
