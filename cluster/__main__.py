"""`python -m cluster`: progress goes to stderr, the answer to stdout."""

from __future__ import annotations

import argparse
import sys

import cluster
from cluster.report import say


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=cluster.__doc__)
    commands = {
        "up": "start a cluster, or find the running one; prints the kubeconfig's path",
        "down": "end what `up` started",
        "status": "say what runs; exit 1 if nothing usable does",
        "build": "build binaries and images only",
        "kubeconfig": "print the kubeconfig's path; exit 1 if no cluster is up",
        "kubectl": "print the path of a kubectl that fits; exit 1 if no cluster is up",
    }
    parsers = parser.add_subparsers(dest="command", required=True)
    for name, text in commands.items():
        parsers.add_parser(name, help=text, description=text)
    command = parser.parse_args(arguments).command
    try:
        return _run(command)
    except cluster.ClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _run(command: str) -> int:
    if command == "up":
        print(cluster.up().kubeconfig)
    elif command == "down":
        say("down" if cluster.down() else "nothing was up")
    elif command == "build":
        cluster.build()
    elif command == "kubeconfig":
        print(cluster.find().kubeconfig)
    elif command == "kubectl":
        print(cluster.find().kubectl)
    else:
        return _status()
    return 0


def _status() -> int:
    from cluster.status import lines

    text, usable = lines()
    print("\n".join(text))
    return 0 if usable else 1


if __name__ == "__main__":
    sys.exit(main())
