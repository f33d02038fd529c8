"""`make bench`: measure every subject, or those that are named, and print one line for each figure."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import cluster
from bench import claims, exec, ingest, large, models, restart, waiting  # noqa: A004 - named after its subject
from cluster import Cluster

WITHOUT_CLUSTER: Mapping[str, Callable[[], None]] = {"models": models.measure}
ON_CLUSTER: Mapping[str, Callable[[Cluster, Path], None]] = {
    "exec": exec.measure,
    "claims": claims.measure,
    "ingest": ingest.measure,
    "large": large.measure,
    "restart": restart.measure,
    "waiting": waiting.measure,
}


def main() -> int:
    """One subject after the other, so that none is another one's noise."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = [*WITHOUT_CLUSTER, *ON_CLUSTER]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all of {', '.join(known)} where none is named")
    names = parser.parse_args().names or known
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names:
        print(f"\n{name}", flush=True)
        if name in WITHOUT_CLUSTER:
            WITHOUT_CLUSTER[name]()
        else:
            ON_CLUSTER[name](cluster.up(), Path(tempfile.mkdtemp(prefix=f"hummingbird-bench-{name}-")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
