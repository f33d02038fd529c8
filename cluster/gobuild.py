"""Binaries built from Go modules, kept in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.cache import made_once
from cluster.commands import run
from cluster.errors import BuildFailed
from cluster.paths import cache_root
from cluster.report import step
from cluster.versions import BUILDS, KUBERNETES, GoBuild, build_key, ldflags, version_of

_HINT = "Go 1.26 or newer and a reachable Go module proxy (see `go env GOPROXY`) are needed."


def folder_of(build: GoBuild) -> Path:
    """Where the binaries are, or will be."""
    return cache_root() / build_key(build)


def is_built(build: GoBuild) -> bool:
    """Whether they are there."""
    return folder_of(build).is_dir()


def built(build: GoBuild) -> Path:
    """The folder of the binaries, built now if need be."""
    version = version_of(build)

    def make(work: Path) -> None:
        note = ", once; this takes some minutes" if build is KUBERNETES else ", once"
        with step(f"building {build.name} {version}{note}"):
            # Downloads come first and apart, so that a network failure is not reported as a compiler's.
            run(["go", "-C", build.folder, "mod", "download"], error=BuildFailed, env=_go_env(), hint=_HINT)
            common = ["go", "-C", str(build.folder), "build", "-trimpath", "-ldflags", ldflags(build, version)]
            if len(build.binaries) == 1:
                (name, package), *_ = build.binaries
                run([*common, "-o", work / name, package], error=BuildFailed, env=_go_env(), hint=_HINT)
            else:
                # One call for all: what the binaries share is compiled once. `DIR/` keeps the packages' names.
                packages = [package for _, package in build.binaries]
                run([*common, "-o", f"{work}{os.sep}", *packages], error=BuildFailed, env=_go_env(), hint=_HINT)
        for name, _ in build.binaries:
            if not (work / name).is_file():
                raise BuildFailed(f"the build of {build.name} ended well but made no `{name}`")

    return made_once(folder_of(build), make)


def build_all() -> None:
    """Build whatever is missing."""
    for build in BUILDS:
        built(build)


def kubectl_path() -> Path:
    """The kubectl that is built with the rest."""
    return folder_of(KUBERNETES) / "kubectl"


def _go_env() -> dict[str, str]:
    # Settings of a developer's shell (a workspace, a vendor folder) must not change what is built here.
    return {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
