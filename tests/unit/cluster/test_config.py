from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from cluster import certs, config
from cluster.paths import State
from cluster.ports import Ports

STATE = State(Path("/state"))
PORTS = Ports(apiserver=1001, etcd=1002, etcd_peer=1003, kubelet=1004)
BIN = Path("/bin/k")


def test_containerd_keeps_everything_below_the_folder() -> None:
    parsed = tomllib.loads(config.containerd_config(STATE))
    cri = parsed["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "localhost/pause:dev"
    assert cri["netns_mounts_under_state_dir"] is True
    options = cri["containerd"]["runtimes"]["runc"]["options"]
    assert options == {"SystemdCgroup": False, "Root": "/state/containerd/runc"}
    places = [parsed["root"], parsed["state"], parsed["grpc"]["address"], cri["cni"]["conf_dir"]]
    assert all(place.startswith("/state/") for place in places)


def test_the_network_is_one_bridge_whose_leases_lie_in_the_folder() -> None:
    bridge, ipv4_only = json.loads(config.cni_config(STATE))["plugins"]
    assert ipv4_only == {"type": "tuning", "sysctl": {"net.ipv6.conf.eth0.disable_ipv6": "1"}}
    assert bridge["bridge"] == "hb0"
    assert bridge["ipam"]["dataDir"] == "/state/ipam"
    assert bridge["ipMasq"] is False


def test_the_kubelet_is_not_throttled_and_never_evicts() -> None:
    kubelet = yaml.safe_load(config.kubelet_config(STATE, PORTS))
    assert kubelet["port"] == 1004
    assert kubelet["address"] == "127.0.0.1"
    assert kubelet["registryPullQPS"] == 0
    assert kubelet["serializeImagePulls"] is False
    assert kubelet["maxPods"] == 250
    assert kubelet["kubeAPIQPS"] >= 50
    assert kubelet["kubeAPIBurst"] >= 100
    assert kubelet["evictionHard"] == {}
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["containerRuntimeEndpoint"] == "unix:///state/containerd/containerd.sock"


def test_all_servers_listen_on_the_loopback_address_only() -> None:
    etcd = config.etcd_command(BIN / "etcd", STATE, PORTS)
    assert "--listen-client-urls=http://127.0.0.1:1002" in etcd
    assert "--listen-peer-urls=http://127.0.0.1:1003" in etcd
    assert "--unsafe-no-fsync" in etcd
    apiserver = config.apiserver_command(BIN, STATE, PORTS)
    assert {"--bind-address=127.0.0.1", "--secure-port=1001", "--etcd-servers=http://127.0.0.1:1002"} <= set(apiserver)
    for command in (config.controller_manager_command(BIN, STATE), config.scheduler_command(BIN, STATE)):
        assert {"--secure-port=0", "--leader-elect=false", "--kube-api-qps=100"} <= set(command)


def test_the_node_is_named_by_its_address() -> None:
    assert "--hostname-override=127.0.0.1" in config.kubelet_command(BIN, STATE)
    router = config.kube_router_command(BIN / "kube-router", STATE)
    assert {"--hostname-override=127.0.0.1", "--run-firewall=true", "--run-router=false"} <= set(router)


def test_a_kubeconfig_points_at_the_chosen_port_and_the_clients_files() -> None:
    parsed = yaml.safe_load(certs.kubeconfig(STATE, "kcm", 1001))
    assert parsed["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1001"
    assert parsed["users"][0]["user"]["client-certificate"] == "/state/pki/kcm.crt"
    assert parsed["current-context"] == parsed["contexts"][0]["name"]


def test_certificates_carry_the_names_that_kubernetes_reads(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    certs.write_pki(state)
    certs.write_kubeconfigs(state, 6443)
    subject = x509.load_pem_x509_certificate((state.pki / "kubelet.crt").read_bytes()).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:127.0.0.1"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    assert state.pki.stat().st_mode & 0o077 == 0
    assert state.kubeconfig.stat().st_mode & 0o077 == 0
    assert b"PRIVATE KEY" in (state.pki / "sa.key").read_bytes()
    assert not (state.pki / "ca.key").exists()
