"""The shared cluster, and what every test on it needs. Tests keep to namespaces of their own; CRDs are shared."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import cluster
from tests.oracles.requests import requests_pass_their_oracle
from tests.standins.ministack import ministack

__all__ = ["requests_pass_their_oracle"]

ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--outage-seconds",
        type=float,
        default=15.0,
        help="how long each service is away in test_outages.py (%(default)s); from 30 on, stalled and shut in turn",
    )
    parser.addoption(
        "--kills", type=int, default=8, help="how often the operator is killed in test_chaos.py (%(default)s)"
    )
    for name, default, what in (
        ("events", 80, "events that people cause in test_evening.py; from 300 on, two ingestors of each kind"),
        ("kills", 3, "how often a process is killed in test_evening.py, operators that die by themselves besides"),
        ("seed", 20261201, "what test_evening.py draws from"),
    ):
        parser.addoption(f"--evening-{name}", type=int, default=default, help=f"{what} (%(default)s)")


LONGEST_FIRST = (
    "evening",
    "failover",
    "kills",
    "outages",
    "ingest_outage",
    "ingest_sqs",
    "chaos",
    "pool",
    "conversation",
)
"""Files are handed to workers whole, in this order: a long one that comes last would keep all others waiting."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file only: within one, the order is its own."""
    ranks = {f"test_{name}.py": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)) if item.path.parent.name == "e2e" else -1)


class Kubectl(Protocol):
    """kubectl against the shared cluster; a failure raises AssertionError with its words unless `check` is False."""

    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def shared_cluster() -> cluster.Cluster:
    return cluster.up()


@pytest.fixture(scope="session")
def kubeconfig(shared_cluster: cluster.Cluster) -> str:
    return str(shared_cluster.kubeconfig)


@pytest.fixture(scope="session")
def kubectl(shared_cluster: cluster.Cluster) -> Kubectl:
    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(shared_cluster.kubectl), "--kubeconfig", str(shared_cluster.kubeconfig), *arguments],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments[:4])}: {done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real S3 server."""
    with ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def crds(kubectl: Kubectl) -> None:
    """Both kinds, as committed. Applied by the server, so that several test runs may do so at once; never deleted."""
    files = [str(ROOT / "crds" / name) for name in ("agentruns.yaml", "sandboxpools.yaml")]
    for file in files:
        kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=hummingbird-tests", "-f", file)
    for file in files:
        kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", file)


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, kubectl: Kubectl) -> Iterator[str]:
    """A namespace of the test module, named after it; deleted without waiting."""
    module = Path(str(request.path)).stem.removeprefix("test_").replace("_", "-")
    name = f"hbtest-{module}-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false", check=False)
