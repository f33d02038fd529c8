"""The functions that callers use. Modules of a provider are loaded when it is taken."""

from __future__ import annotations

from pathlib import Path

from cluster import providers
from cluster.errors import NotRunning
from cluster.model import Choice, Cluster
from cluster.paths import State, state_root
from cluster.report import say


def up() -> Cluster:
    """A Kubernetes that answers; the one that runs already, if there is one."""
    facts = providers.gather()
    choice = providers.choose(facts)
    say(str(choice))
    state = State(state_root())
    if choice.provider == "kubeconfig":
        from cluster import external

        return external.up(Path(facts.kubeconfig or "").expanduser().absolute(), choice)
    if choice.provider == "kind":
        from cluster import kind

        return kind.up(state, choice)
    from cluster import local

    return local.up(state, choice)


def find() -> Cluster:
    """The cluster that is up; NotRunning if there is none. Starts and builds nothing."""
    from cluster import external, local

    facts = providers.gather()
    state = State(state_root())
    if facts.kubeconfig:
        path = Path(facts.kubeconfig).expanduser().absolute()
        return external.find(path, providers.choose(facts), external.kubectl(build=False))
    if state.kind_kubeconfig.exists():
        earlier = Choice("kind", "made by an earlier up")
        return external.find(state.kind_kubeconfig, earlier, external.kubectl(build=False))
    running = local.find(state)
    if running is None:
        raise NotRunning("no cluster is up: run `python -m cluster up`")
    return local.describe(state, running, Choice("local", "made by an earlier up"))


def build() -> None:
    """Make what `up` would have to make first."""
    choice = providers.choose(providers.gather())
    say(str(choice))
    if choice.provider == "local":
        from cluster import local

        local.build()
    else:
        say("nothing to build")


def down() -> bool:
    """End what `up` started and leave nothing of it; whether there was anything. A user's cluster is left alone."""
    from cluster import kind, local

    state = State(state_root())
    had_kind = kind.down(state)
    return local.down(state) or had_kind
