"""Keys, certificates and kubeconfigs of one local cluster. They live and die with its folder."""

from __future__ import annotations

from dataclasses import dataclass

import trustme
import yaml

from cluster.paths import State

# The kubelet refuses a loopback address as --node-ip, and without an address `exec` finds no way to the node.
# A name that is an address is the way out.
NODE = "127.0.0.1"


@dataclass(frozen=True)
class Identity:
    """A certificate to be issued: file name, names or addresses, common name, organisation."""

    file: str
    names: tuple[str, ...]
    common_name: str
    organization: str | None = None


IDENTITIES = (
    Identity("apiserver", ("127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"), "kube-apiserver"),
    Identity("kubelet-client", ("kubelet-client.local",), "kube-apiserver-kubelet-client", "system:masters"),
    Identity("admin", ("admin.local",), "admin", "system:masters"),
    Identity("kubelet", (NODE,), f"system:node:{NODE}", "system:nodes"),
    Identity("kcm", ("kcm.local",), "system:kube-controller-manager", "system:kube-controller-manager"),
    Identity("scheduler", ("scheduler.local",), "system:kube-scheduler", "system:kube-scheduler"),
)
CLIENTS = ("admin", "kubelet", "kcm", "scheduler")


def write_pki(state: State) -> None:
    """Issue everything from a new authority, whose own key is never written down."""
    state.pki.mkdir(mode=0o700, parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(state.pki / "ca.crt")
    for one in IDENTITIES:
        cert = authority.issue_cert(*one.names, common_name=one.common_name, organization_name=one.organization)
        cert.private_key_pem.write_to_path(state.pki / f"{one.file}.key")
        (state.pki / f"{one.file}.crt").write_bytes(b"".join(pem.bytes() for pem in cert.cert_chain_pems))
    # Any key will do to sign service-account tokens: the API server derives the public half from it.
    signer = authority.issue_cert("service-accounts.local")
    signer.private_key_pem.write_to_path(state.pki / "sa.key")


def kubeconfig(state: State, client: str, port: int) -> str:
    """A kubeconfig that names the client's files."""
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(state.pki / "ca.crt")}
    user = {
        "client-certificate": str(state.pki / f"{client}.crt"),
        "client-key": str(state.pki / f"{client}.key"),
    }
    name = "hummingbird"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": client}}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write_kubeconfigs(state: State, port: int) -> None:
    """One kubeconfig for each client."""
    for client in CLIENTS:
        path = state.root / f"{client}.kubeconfig"
        path.write_text(kubeconfig(state, client, port))
        path.chmod(0o600)
