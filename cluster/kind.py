"""Provider `kind`: one cluster named `hummingbird` in containers."""

from __future__ import annotations

from pathlib import Path

from cluster import cleanup, providers
from cluster.commands import run
from cluster.errors import StartFailed
from cluster.external import first_node, kubectl
from cluster.locks import locked
from cluster.model import SANDBOX_IMAGE, Choice, Cluster
from cluster.paths import IMAGE_RECIPES, State
from cluster.report import say, step

NAME = "hummingbird"


def up(state: State, choice: Choice) -> Cluster:
    """Create or find the cluster and give it the sandbox image."""
    engine = providers.engine()
    if engine is None:
        raise StartFailed("docker or podman stopped answering: start it again")
    env = _env(engine)
    with locked(state.lock, "start or stop the cluster"):
        cleanup.check_owner(state)
        state.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.marker.touch()
        kubeconfig = state.kind_kubeconfig
        if NAME in run(["kind", "get", "clusters"], error=StartFailed, env=env).split():
            say("already up")
            export = ["kind", "export", "kubeconfig", "--name", NAME]
            run([*export, "--kubeconfig", kubeconfig], error=StartFailed, env=env)
        else:
            with step("creating a kind cluster"):
                create = ["kind", "create", "cluster", "--name", NAME, "--wait", "120s"]
                run([*create, "--kubeconfig", kubeconfig], error=StartFailed, env=env)
        _load_image(engine, state.root)
    tool = kubectl()
    return Cluster(kubeconfig, "kind", choice.reason, tool, first_node(tool, kubeconfig))


def down(state: State) -> bool:
    """Delete the cluster that `up` made; whether there was one."""
    if not state.kind_kubeconfig.exists():
        return False
    env = _env(providers.engine() or "docker")
    with locked(state.lock, "start or stop the cluster"), step("deleting the kind cluster"):
        run(["kind", "delete", "cluster", "--name", NAME, "--kubeconfig", state.kind_kubeconfig], env=env)
        state.kind_kubeconfig.unlink(missing_ok=True)
        if not state.record.exists():  # Else a local cluster lives there too, and `down` goes on to it.
            cleanup.remove_folder(state)
    return True


def _load_image(engine: str, folder: Path) -> None:
    """Through an archive: `kind load docker-image` does not look into podman."""
    archive = folder / "sandbox.tar"
    with step("building and loading the sandbox image"):
        run([engine, "build", "-q", "-t", SANDBOX_IMAGE, IMAGE_RECIPES / "sandbox"], error=StartFailed)
        archive.unlink(missing_ok=True)
        run([engine, "save", "-o", archive, SANDBOX_IMAGE], error=StartFailed)
        run(["kind", "load", "image-archive", archive, "--name", NAME], error=StartFailed, env=_env(engine))
        archive.unlink()


def _env(engine: str) -> dict[str, str]:
    return {"KIND_EXPERIMENTAL_PROVIDER": "podman"} if engine == "podman" else {}
