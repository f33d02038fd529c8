"""What is built, and the folder names under which the results are kept."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import BuildFailed
from cluster.paths import GO_MODULES, IMAGE_RECIPES

_KUBERNETES_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True)
class GoBuild:
    """One Go module of cluster/go and the binaries made from it: name -> package."""

    name: str
    module: str
    binaries: tuple[tuple[str, str], ...]

    @property
    def folder(self) -> Path:
        """Its folder in the checkout."""
        return GO_MODULES / self.name


KUBERNETES = GoBuild(
    "kubernetes",
    "k8s.io/kubernetes",
    tuple(
        (name, f"k8s.io/kubernetes/cmd/{name}")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
    ),
)
ETCD = GoBuild("etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),))
KUBE_ROUTER = GoBuild(
    "kube-router",
    "github.com/cloudnativelabs/kube-router/v2",
    (("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),),
)
BUILDS = (ETCD, KUBERNETES, KUBE_ROUTER)


def required_version(go_mod: str, module: str) -> str:
    """The version that a go.mod requires: the one place where versions are written."""
    found = re.search(rf"^(?:require)?\s+{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise BuildFailed(f"go.mod does not require {module}: restore cluster/go from the repository")
    return found.group(1)


def version_of(build: GoBuild) -> str:
    """The version that this checkout builds."""
    return required_version((build.folder / "go.mod").read_text(), build.module)


def ldflags(build: GoBuild, version: str) -> str:
    """Without version flags an API server says v0.0.0 and clients misbehave."""
    flags = ["-s", "-w"]
    if build is KUBERNETES:
        major, minor = version.removeprefix("v").split(".")[:2]
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in _KUBERNETES_VERSION_PACKAGES:
            flags += [f"-X {package}.{key}={value}" for key, value in values.items()]
    elif build is KUBE_ROUTER:
        flags.append(f"-X {build.module}/pkg/version.Version={version}")
    return " ".join(flags)


def digest(parts: Iterable[bytes]) -> str:
    """A short hash of a list of byte strings, each with its length so that none can flow into the next."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:12]


def build_key(build: GoBuild) -> str:
    """The folder's name: a change of go.mod, go.sum, the flags or the machine's kind is a new folder."""
    version = version_of(build)
    files = [(build.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
    mark = digest([*files, ldflags(build, version).encode(), *(name.encode() for name, _ in build.binaries)])
    return f"{build.name}-{version}-{platform.machine()}-{mark}"


def image_key(recipes: Path = IMAGE_RECIPES) -> str:
    """The folder's name for the images: a change of any recipe file is a new folder."""
    files = sorted(path for path in recipes.rglob("*") if path.is_file())
    parts = [part for path in files for part in (str(path.relative_to(recipes)).encode(), path.read_bytes())]
    return f"images-{platform.machine()}-{digest(parts)}"
