"""The two images, built without a registry: a Debian from mmdebstrap and a pause from a static busybox."""

from __future__ import annotations

import platform
import shutil
import tempfile
from pathlib import Path

from cluster.cache import made_once
from cluster.commands import attempt, run
from cluster.errors import BuildFailed
from cluster.model import PAUSE_IMAGE, SANDBOX_IMAGE
from cluster.paths import IMAGE_RECIPES, cache_root
from cluster.report import step
from cluster.versions import digest, image_key

BASE_IMAGE = "localhost/hummingbird-debian:dev"
ROOTFS = "rootfs.tar"
SANDBOX_TAR = "sandbox.tar"
PAUSE_TAR = "pause.tar"

# Root inside a container often may not raise limits, and has no systemd for cgroups: podman's defaults need both.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""
# Documentation and translations are a third of a minimal Debian and no use to a model.
_SLIM = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "lintian")]


def images_folder() -> Path:
    """Where the archives are, or will be."""
    return cache_root() / image_key()


def image_archives() -> Path:
    """The folder with both archives, built now if need be."""
    return made_once(images_folder(), _make)


def debian_release(os_release: str) -> str:
    """The code name of this Debian: packages of its own suite are what its mirrors surely have."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    if values.get("ID", "").strip('"') == "debian" and "VERSION_CODENAME" in values:
        return values["VERSION_CODENAME"].strip('"')
    return "bookworm"


def package_names() -> list[str]:
    """What the sandbox image holds beside a minimal Debian."""
    return (IMAGE_RECIPES / "sandbox" / "packages.txt").read_text().split()


def debian_folder() -> Path:
    """The folder with `rootfs.tar` and a Containerfile for it, built now if need be.

    Kept apart from the images: a change of the sandbox's Containerfile does not need a new Debian.
    """
    release = debian_release(Path("/etc/os-release").read_text())
    key = digest([name.encode() for name in (release, *package_names(), *_SLIM)])

    def make(work: Path) -> None:
        names = ",".join(package_names())
        argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={names}", *_SLIM, release]
        with step(f"image: Debian {release} root file system with mmdebstrap"):
            run([*argv, work / ROOTFS], error=BuildFailed, hint="A Debian mirror must be reachable.")
        (work / "Containerfile").write_text(f"FROM scratch\nADD {ROOTFS} /\n")

    return made_once(cache_root() / f"debian-{release}-{platform.machine()}-{key}", make)


def _make(work: Path) -> None:
    base = debian_folder()
    # Not below `work`: podman wants a short path for its --runroot.
    scratch = Path(tempfile.mkdtemp(prefix="hummingbird-"))
    try:
        pause = scratch / "pause"
        shutil.copytree(IMAGE_RECIPES / "pause", pause)
        shutil.copy2("/bin/busybox", pause / "busybox")
        podman = _Podman(scratch)
        with step("image: sandbox and pause with podman"):
            podman.build(base, BASE_IMAGE)
            podman.build(IMAGE_RECIPES / "sandbox", SANDBOX_IMAGE, f"BASE={BASE_IMAGE}")
            podman.build(pause, PAUSE_IMAGE)
            podman.save(SANDBOX_IMAGE, work / SANDBOX_TAR)
            podman.save(PAUSE_IMAGE, work / PAUSE_TAR)
    finally:
        _unmount_below(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


class _Podman:
    """podman with its own storage, so that a build leaves nothing in the machine's."""

    def __init__(self, scratch: Path) -> None:
        conf = scratch / "containers.conf"
        conf.write_text(_CONTAINERS_CONF)
        self._env = {"CONTAINERS_CONF": str(conf), "TMPDIR": str(scratch)}
        self._base = ["podman", "--root", str(scratch / "storage"), "--runroot", str(scratch / "run")]

    def build(self, context: Path, tag: str, *arguments: str) -> None:
        given = [word for argument in arguments for word in ("--build-arg", argument)]
        options = ["--runtime", "runc", "--isolation", "chroot", "--pull-never", "-q", *given, "-t", tag]
        run([*self._base, "build", *options, context], error=BuildFailed, env=self._env)

    def save(self, tag: str, target: Path) -> None:
        run([*self._base, "save", "-q", "-o", target, tag], error=BuildFailed, env=self._env)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        attempt(["umount", "-l", mount])
