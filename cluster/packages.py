"""Debian packages that the local provider needs, installed when missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.commands import TOOL_PATH, attempt, run
from cluster.errors import BuildFailed
from cluster.report import step

# conntrack, ipset and iptables serve kube-router; podman, mmdebstrap and busybox-static make the images.
PACKAGES = (
    "containerd", "runc", "containernetworking-plugins", "iptables", "ipset", "conntrack", "podman", "mmdebstrap",
    "busybox-static", "iproute2", "procps", "mount",
)  # fmt: skip
APT_LISTS = Path("/var/lib/apt/lists")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def parse_installed(listing: str) -> set[str]:
    """Names out of lines `name status`; a removed package whose settings remain is not installed."""
    pairs = (line.split() for line in listing.splitlines())
    return {pair[0] for pair in pairs if len(pair) == 2 and pair[1] == "installed"}


def missing_packages(wanted: Iterable[str] = PACKAGES) -> list[str]:
    """Those that are not installed."""
    # Asks for every package: dpkg-query fails as a whole when it does not know one of the names it is given.
    listing = attempt(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"]) or ""
    installed = parse_installed(listing)
    return [name for name in wanted if name not in installed]


def ensure_packages() -> None:
    """Install what is missing; read the package lists only when that is needed."""
    missing = missing_packages()
    if not missing:
        return
    names = " ".join(missing)
    if shutil.which("apt-get", path=TOOL_PATH) is None:
        raise BuildFailed(f"these tools are missing and there is no apt-get to install them: {names}")
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    with step(f"installing Debian packages: {names}"):
        if any(APT_LISTS.glob("*_Packages*")):
            try:
                run(install, error=BuildFailed, env=_QUIET)
                return
            except BuildFailed:
                pass  # The lists may name versions that the mirror no longer has: read them again, then once more.
        run(["apt-get", "update", "-q"], error=BuildFailed, env=_QUIET, hint="Check the machine's apt sources.")
        run(install, error=BuildFailed, env=_QUIET, hint=f"Install them by hand: apt-get install {names}")
