"""What the parts of a local cluster are told: configuration files and command lines. Pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from cluster.certs import NODE
from cluster.model import PAUSE_IMAGE
from cluster.paths import State
from cluster.ports import LOOPBACK, Ports

BRIDGE = "hb0"
NETWORK = "hummingbird"
POD_RANGE = "10.244.0.0/16"  # A /24 is too tight for 250 pods that come and go.
SERVICE_RANGE = "10.96.0.0/16"
CNI_PLUGINS = "/usr/lib/cni"  # Where Debian puts them.
MASQUERADE_MARK = "hummingbird-cluster"
MAX_PODS = 250


def containerd_config(state: State) -> str:
    """containerd's config.toml (version 2, as of containerd 1.6)."""
    # Everything below one folder, network namespaces too: clean-up needs to look in one place only.
    return f"""\
version = 2
root = "{state.containerd}/root"
state = "{state.containerd_state}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{state.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  max_concurrent_downloads = 1
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{state.cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{state.runc}"
"""


def cni_config(state: State) -> str:
    """One bridge with addresses from a local file."""
    # No ipMasq: one rule for the whole range, made by us, costs less than two rules and a chain for each pod.
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(state.root / "ipam"),
        },
    }
    # Link-local addresses of IPv6 would let pods reach each other and the node past kube-router, which filters IPv4.
    ipv4_only = {"type": "tuning", "sysctl": {"net.ipv6.conf.eth0.disable_ipv6": "1"}}
    return json.dumps({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [bridge, ipv4_only]}, indent=2)


def kubelet_config(state: State, ports: Ports) -> str:
    """A KubeletConfiguration that works as root of a container, and is quick."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": LOOPBACK,
        "port": ports.kubelet,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(state.pki / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},  # Only our API server holds a certificate of this authority.
        "tlsCertFile": str(state.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(state.pki / "kubelet.key"),
        # Works on cgroup v1 and v2, without systemd, and as root of a container.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "oomScoreAdj": 0,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "featureGates": {"KubeletInUserNamespace": True},
        # A full disk of a developer's machine must not evict pods, nor delete images that nobody can pull again.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": ["10.96.0.10"],
        "containerRuntimeEndpoint": f"unix://{state.containerd_socket}",
        "podLogsDir": str(state.root / "podlogs"),
        "volumePluginDir": str(state.root / "volume-plugins"),
        # Bursts of pods: no client-side throttling, short periods.
        "maxPods": MAX_PODS,
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
    }
    return yaml.safe_dump(config, sort_keys=False)


def etcd_command(etcd: Path, state: State, ports: Ports) -> list[str]:
    """etcd without fsync: the data is thrown away with the cluster."""
    client = f"http://{LOOPBACK}:{ports.etcd}"
    peer = f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        str(etcd), f"--data-dir={state.root}/etcd", f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync", "--log-level=warn",
    ]  # fmt: skip


def apiserver_command(binaries: Path, state: State, ports: Ports) -> list[str]:
    """The API server, on the loopback address only."""
    pki = state.pki
    return [
        f"{binaries}/kube-apiserver", f"--etcd-servers=http://{LOOPBACK}:{ports.etcd}",
        f"--secure-port={ports.apiserver}", f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none",
        "--allow-privileged=true", "--authorization-mode=Node,RBAC", f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key", f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc", f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt", f"--kubelet-client-key={pki}/kubelet-client.key",
        f"--cert-dir={state.root}/apiserver", "--profiling=false",
    ]  # fmt: skip


def controller_manager_command(binaries: Path, state: State) -> list[str]:
    """The controller manager; nobody asks its own port."""
    own = f"{state.root}/kcm.kubeconfig"
    return [
        f"{binaries}/kube-controller-manager", f"--kubeconfig={own}", "--secure-port=0", "--leader-elect=false",
        f"--service-account-private-key-file={state.pki}/sa.key", f"--root-ca-file={state.pki}/ca.crt",
        "--use-service-account-credentials=true", "--kube-api-qps=100", "--kube-api-burst=200", "--profiling=false",
    ]  # fmt: skip


def scheduler_command(binaries: Path, state: State) -> list[str]:
    """The scheduler; nobody asks its own port."""
    return [
        f"{binaries}/kube-scheduler", f"--kubeconfig={state.root}/scheduler.kubeconfig", "--secure-port=0",
        "--leader-elect=false", "--kube-api-qps=100", "--kube-api-burst=200",
    ]  # fmt: skip


def kubelet_command(binaries: Path, state: State) -> list[str]:
    """The kubelet."""
    return [
        f"{binaries}/kubelet", f"--config={state.root}/kubelet.yaml", f"--kubeconfig={state.root}/kubelet.kubeconfig",
        f"--root-dir={state.kubelet}", f"--hostname-override={NODE}", f"--cert-dir={state.root}/kubelet-pki",
    ]  # fmt: skip


def kube_router_command(binary: Path, state: State) -> list[str]:
    """kube-router as the enforcer of NetworkPolicy."""
    # Only the firewall: it enforces NetworkPolicy. Its router wants BGP, its proxy IPVS.
    return [
        str(binary), f"--kubeconfig={state.kubeconfig}", "--run-router=false", "--run-service-proxy=false",
        "--run-firewall=true", f"--hostname-override={NODE}", "--iptables-sync-period=30s",
        f"--service-cluster-ip-range={SERVICE_RANGE}", "--health-port=0", "--metrics-port=0",
        "--service-node-port-range=1-2",  # What it exempts from every policy on the node; nobody serves node ports.
    ]  # fmt: skip
