"""Start the parts of a local cluster in the order in which they need each other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cluster import certs, config, firewall, gobuild, imagebuild, processes, record, rest
from cluster.commands import TOOL_PATH, run, tail
from cluster.errors import StartFailed
from cluster.paths import State
from cluster.ports import Ports, choose
from cluster.record import Record
from cluster.report import step
from cluster.versions import BUILDS, ETCD, KUBE_ROUTER, KUBERNETES, build_key, image_key

PATIENCE_SECONDS = 120.0


class Starter:
    """Starts processes one by one and writes each of them down before the next."""

    def __init__(self, state: State, record_: Record) -> None:
        self.state = state
        self.record = record_

    def start(self, name: str, argv: Sequence[str | Path]) -> None:
        """One process."""
        process = processes.start(name, argv, self.state.logs / f"{name}.log")
        self.save(self.record.with_process(process))

    def save(self, record_: Record) -> None:
        """Keep and write down."""
        self.record = record_
        record.write(self.state, record_)

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until `ready`; fail at once when a process ends, with the end of its log."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            for name in self.record.dead():
                raise StartFailed(f"{name} ended while waiting for {what}:\n{self._log(name)}")
            if time.monotonic() > end:
                raise StartFailed(f"{what} was not there after {PATIENCE_SECONDS:.0f} s. Logs: {self.state.logs}")
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        path = self.state.logs / f"{name}.log"
        return f"{tail(path.read_text(errors='replace'))}\nThe whole log: {path}"


def start(state: State) -> Record:
    """All parts, until the node takes pods. What it needs is built already."""
    etcd, kubernetes, kube_router = (gobuild.folder_of(build) for build in (ETCD, KUBERNETES, KUBE_ROUTER))
    ports = _prepare(state)
    starter = Starter(
        state,
        Record(
            boot=processes.boot_id(),
            ports=ports,
            builds=tuple(build_key(build) for build in BUILDS),
            kubectl=str(gobuild.kubectl_path()),
        ),
    )
    starter.save(starter.record)
    with step("starting Kubernetes"), ThreadPoolExecutor(1) as pool:
        starter.start("containerd", [_tool("containerd"), "-c", state.containerd / "config.toml"])
        starter.start("etcd", config.etcd_command(etcd / "etcd", state, ports))
        starter.start("kube-apiserver", config.apiserver_command(kubernetes, state, ports))
        # Both wait on something else than our two cores for much of their time.
        images = pool.submit(import_images, state)
        firewall.masquerade()
        starter.wait("the API server", lambda: rest.is_ready(state, ports.apiserver))
        starter.start("kube-controller-manager", config.controller_manager_command(kubernetes, state))
        starter.start("kube-scheduler", config.scheduler_command(kubernetes, state))
        starter.wait("the images", images.done)
        images.result()
        starter.start("kubelet", config.kubelet_command(kubernetes, state))
        node = f"/api/v1/nodes/{certs.NODE}"
        starter.wait("the node", lambda: rest.exists(state, ports.apiserver, node))
        # kube-router ends when its node does not exist yet.
        starter.start("kube-router", config.kube_router_command(kube_router / "kube-router", state))
        starter.wait("a Ready node", lambda: rest.node_is_ready(state, ports.apiserver))
        starter.wait("the firewall", firewall.is_enforced)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        starter.wait("the default service account", lambda: rest.exists(state, ports.apiserver, account))
    starter.save(replace(starter.record, images=image_key(), complete=True))
    return starter.record


def import_images(state: State) -> None:
    """Give containerd the two images, as soon as it answers."""
    ctr = ["ctr", "-a", str(state.containerd_socket), "-n", "k8s.io"]
    end = time.monotonic() + 30
    while not state.containerd_socket.exists():
        if time.monotonic() > end:
            raise StartFailed(f"containerd made no socket. Its log: {state.logs / 'containerd.log'}")
        time.sleep(0.05)
    for name in (imagebuild.PAUSE_TAR, imagebuild.SANDBOX_TAR):
        run([*ctr, "images", "import", imagebuild.images_folder() / name], error=StartFailed, timeout=120)


def _prepare(state: State) -> Ports:
    """Folders, keys and configuration files."""

    for folder in (state.logs, state.containerd, state.cni, state.kubelet):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ports = choose()
    certs.write_pki(state)
    certs.write_kubeconfigs(state, ports.apiserver)
    (state.containerd / "config.toml").write_text(config.containerd_config(state))
    (state.cni / "10-hummingbird.conflist").write_text(config.cni_config(state))
    (state.root / "kubelet.yaml").write_text(config.kubelet_config(state, ports))
    return ports


def _tool(name: str) -> str:
    found = shutil.which(name, path=TOOL_PATH)
    if found is None:
        raise StartFailed(f"`{name}` is not installed: apt-get install {name}")
    return found
