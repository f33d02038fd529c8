"""`make bench`: measure every subject, or those that are named, and print one line for each figure."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import cluster
from bench import claims, exec, large, restart, waiting  # noqa: A004 - named after its subject
from cluster import Cluster

SUBJECTS: Mapping[str, Callable[[Cluster, Path], None]] = {
    "exec": exec.measure,
    "claims": claims.measure,
    "large": large.measure,
    "restart": restart.measure,
    "waiting": waiting.measure,
}


def main() -> int:
    """One subject after the other, so that none is another one's noise."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all of {', '.join(SUBJECTS)} where none is named")
    names = parser.parse_args().names or list(SUBJECTS)
    if unknown := sorted(set(names) - set(SUBJECTS)):
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    found = cluster.up()
    for name in names:
        print(f"\n{name}", flush=True)
        SUBJECTS[name](found, Path(tempfile.mkdtemp(prefix=f"hummingbird-bench-{name}-")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
