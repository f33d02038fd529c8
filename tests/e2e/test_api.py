"""Both kinds on a real API server: what it takes, what it refuses, and the words a person sees."""

from __future__ import annotations

import copy
import json
import secrets
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import AgentRun, AgentRunSpec
from hummingbird_operator.api.kinds import KINDS
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.errors import Invalid
from tests.e2e.conftest import Kubectl
from tests.unit.api import samples

pytestmark = pytest.mark.usefixtures("crds")

Object = dict[str, Any]


class Cluster:
    """Objects in one namespace, by way of kubectl: its words are what a person sees."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self.kubectl = kubectl
        self.namespace = namespace

    def body(self, kind: str, spec: Object, name: str | None = None) -> Object:
        metadata = {"name": name or f"t-{secrets.token_hex(6)}", "namespace": self.namespace}
        return {"apiVersion": labels.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}

    def create(self, body: Object) -> str:
        """The server's refusal, or nothing."""
        return self.kubectl("create", "-f", "-", stdin=json.dumps(body), check=False).stderr

    def made(self, kind: str, spec: Object) -> str:
        body = self.body(kind, spec)
        assert self.create(body) == ""
        return str(body["metadata"]["name"])

    def merge(self, resource: str, name: str, change: Object, *options: str) -> str:
        done = self.kubectl(
            *("patch", resource, name, "-n", self.namespace, "--type=merge", "--patch-file=/dev/stdin"),
            *options,
            stdin=json.dumps(change),
            check=False,
        )
        return done.stderr

    def get(self, resource: str, name: str) -> Object:
        found: Object = json.loads(self.kubectl("get", resource, name, "-n", self.namespace, "-o", "json").stdout)
        return found


@pytest.fixture(scope="module")
def api(kubectl: Kubectl, namespace: str) -> Cluster:
    return Cluster(kubectl, namespace)


def run_spec(**changes: Any) -> Object:
    return {"workflow": "analyze-failures", **changes}


def pool_spec(**changes: Any) -> Object:
    return {"pod": {"template": samples.POD_TEMPLATE}, **changes}


GITLAB = {"gitlab": {"project": "group/app", "mergeRequest": 42}}
GITHUB = {"github": {"repository": "octo-org/app", "number": 7, "kind": "PullRequest"}}

ACCEPTED_RUNS = {
    "nothing but a workflow": run_spec(),
    "a merge request": run_spec(target=GITLAB),
    "a pull request": run_spec(target=GITHUB),
    "delivery None without a target": run_spec(delivery="None"),
    "the longest name of a workflow": run_spec(workflow="a" * 40),
    "the cheapest budget": run_spec(limits={"maxCostUSD": "0.000001"}),
    "a commit of a SHA-256 repository": run_spec(target={"gitlab": {**GITLAB["gitlab"], "sha": "a" * 64}}),
    "every field at its longest": samples.fullest_spec(),
}

REFUSED_RUNS = {
    "no workflow": ({}, "spec.workflow: Required value"),
    "a workflow in capitals": (run_spec(workflow="Analyze"), "spec.workflow in body should match"),
    "a workflow that is too long": (run_spec(workflow="a" * 41), "spec.workflow: Too long: may not be more than 40"),
    "both targets": (run_spec(target={**GITLAB, **GITHUB}), "spec.target: Invalid value: name exactly one of"),
    "an empty target": (run_spec(target={}), "spec.target: Invalid value: name exactly one of gitlab and github"),
    "a project's address": (
        run_spec(target={"gitlab": {"project": "https://gitlab.example.com/group/app", "mergeRequest": 1}}),
        "spec.target.gitlab.project in body should match",
    ),
    "merge request 0": (
        run_spec(target={"gitlab": {"project": "group/app", "mergeRequest": 0}}),
        "should be greater than or equal to 1",
    ),
    "a short commit id": (
        run_spec(target={"gitlab": {**GITLAB["gitlab"], "sha": "9f2c41d"}}),
        "spec.target.gitlab.sha in body should match",
    ),
    "a session that is no UUID": (run_spec(session="latest"), "spec.session in body should match"),
    "a message that is too long": (run_spec(message="x" * 65_537), "spec.message: Too long: may not be more than"),
    "an unknown notice": (run_spec(target=GITLAB, notice="Hello"), 'supported values: "Help", "UnknownCommand"'),
    "a notice to nobody": (run_spec(notice="Help"), "spec.notice: Invalid value: a notice needs a target to write to"),
    "a note to nobody": (run_spec(delivery="Note"), "spec.delivery: Invalid value: Note needs a target to write to"),
    "podman": (run_spec(sandbox={"backend": "podman"}), 'Unsupported value: "podman": supported values: "k8s"'),
    "a price without quotes": (
        run_spec(limits={"maxCostUSD": 2.5}),
        "spec.limits.maxCostUSD in body must be of type string",
    ),
    "a price with a currency": (run_spec(limits={"maxCostUSD": "$2"}), "spec.limits.maxCostUSD in body should match"),
    "a price of nothing": (
        run_spec(limits={"maxCostUSD": "0.00"}),
        "spec.limits.maxCostUSD: Invalid value: must be more than 0: no call to a model is free",
    ),
    "too many turns": (run_spec(limits={"maxIterations": 1001}), "should be less than or equal to 1000"),
    "an unknown field": (
        run_spec(limits={"maxIteration": 3}),
        'strict decoding error: unknown field "spec.limits.maxIteration"',
    ),
    "a trigger from elsewhere": (
        run_spec(trigger={"source": "jira", "event": "note"}),
        'spec.trigger.source: Unsupported value: "jira": supported values: "gitlab", "github"',
    ),
}

REFUSED_POOLS = {
    "no template": ({"replicas": 1}, "spec: Invalid value: name exactly one of pod and virtualMachine"),
    "both templates": (
        pool_spec(virtualMachine={"template": {"spec": {}}, "sshKeySecret": "key"}),
        "spec: Invalid value: name exactly one of pod and virtualMachine",
    ),
    "more standing by than there may be": (
        pool_spec(replicas=5, maxSandboxes=4),
        "spec.maxSandboxes: Invalid value: must be at least replicas, for it counts them too",
    ),
    "a cluster full of members": (pool_spec(replicas=100_000), "should be less than or equal to 1000"),
    "no container": (
        {"pod": {"template": {"spec": {"containers": []}}}},
        "spec.pod.template.spec.containers in body should have at least 1 items",
    ),
    "too many containers": (
        {"pod": {"template": {"spec": {"containers": [{"name": f"c{n}", "image": "i"} for n in range(9)]}}}},
        "spec.pod.template.spec.containers: Too many: 9: must have at most 8 items",
    ),
    "a container without an image": (
        {"pod": {"template": {"spec": {"containers": [{"name": "sandbox"}]}}}},
        "spec.pod.template.spec.containers[0].image: Required value",
    ),
    "a machine without a key": (
        {"virtualMachine": {"template": {"spec": {}}}},
        "spec.virtualMachine.sshKeySecret: Required value",
    ),
    "an open network by another name": (pool_spec(network="Open"), 'supported values: "Isolated", "Unmanaged"'),
}


@pytest.mark.parametrize("case", ACCEPTED_RUNS)
def test_the_server_and_our_own_parser_accept_the_same_runs(api: Cluster, case: str) -> None:
    name = api.made("AgentRun", ACCEPTED_RUNS[case])
    stored = api.get("agentrun", name)
    assert stored["spec"] == ACCEPTED_RUNS[case]
    assert AgentRun.parse(stored).metadata.name == name


@pytest.mark.parametrize("case", REFUSED_RUNS)
def test_a_refused_run_is_refused_by_both_and_says_why(api: Cluster, case: str) -> None:
    spec, words = REFUSED_RUNS[case]
    assert words in api.create(api.body("AgentRun", spec))
    with pytest.raises(Invalid):
        AgentRunSpec.parse(spec, "spec")


@pytest.mark.parametrize("case", REFUSED_POOLS)
def test_a_refused_pool_says_why(api: Cluster, case: str) -> None:
    spec, words = REFUSED_POOLS[case]
    assert words in api.create(api.body("SandboxPool", spec))


def test_the_longest_name_is_a_label_value_and_one_more_is_refused(api: Cluster) -> None:
    assert api.create(api.body("AgentRun", run_spec(), "n" * 63)) == ""
    assert "metadata.name must have at most 63 characters" in api.create(api.body("AgentRun", run_spec(), "n" * 64))
    assert "metadata.name must not hold dots" in api.create(api.body("SandboxPool", pool_spec(), "a.b"))


CHANGES = {
    "workflow": "other",
    "target": GITHUB,
    "session": samples.SESSION,
    "message": "hello",
    "notice": "Help",
    "trigger": {"source": "gitlab", "event": "note"},
    "model": "gemini-3.8-flash",
    "sandbox": {"pool": "other"},
    "limits": {"maxIterations": 3},
    "delivery": "None",
}


@pytest.mark.parametrize("field", CHANGES)
def test_no_field_of_an_order_can_be_added_later(api: Cluster, field: str) -> None:
    name = api.made("AgentRun", run_spec())
    refusal = api.merge("agentrun", name, {"spec": {field: CHANGES[field]}})
    assert f"spec.{field}: Invalid value: {field} cannot change after creation: make a new AgentRun" in refusal


@pytest.mark.parametrize("field", sorted(CHANGES.keys() - {"workflow"}))
def test_no_field_of_an_order_can_be_taken_away_later(api: Cluster, field: str) -> None:
    name = api.made("AgentRun", samples.fullest_spec())
    assert f"{field} cannot change after creation" in api.merge("agentrun", name, {"spec": {field: None}})


def test_every_field_of_a_spec_is_either_in_the_table_of_changes_or_meant_to_change() -> None:
    names = {field.alias for field in AgentRunSpec.model_fields.values()}
    assert names - CHANGES.keys() == {"cancel", "ttlSecondsAfterFinished"}


def test_a_value_deep_inside_an_order_cannot_change(api: Cluster) -> None:
    name = api.made("AgentRun", run_spec(target=GITLAB))
    refusal = api.merge("agentrun", name, {"spec": {"target": {"gitlab": {"sha": "a" * 40}}}})
    assert "target cannot change after creation" in refusal


def test_cancel_goes_one_way_and_the_time_to_live_both(api: Cluster) -> None:
    name = api.made("AgentRun", run_spec())
    for change in (
        {"cancel": False},
        {"ttlSecondsAfterFinished": 60},
        {"cancel": True},
        {"ttlSecondsAfterFinished": None},
    ):
        assert api.merge("agentrun", name, {"spec": change}) == ""
    for change in ({"cancel": False}, {"cancel": None}):
        refusal = api.merge("agentrun", name, {"spec": change})
        assert "spec.cancel: Invalid value: a cancelled run stays cancelled: make a new AgentRun" in refusal


def test_an_unknown_field_is_warned_about_and_pruned_where_validation_is_lenient(api: Cluster) -> None:
    body = api.body("AgentRun", run_spec(limits={"maxIteration": 3}))
    done = api.kubectl("create", "--validate=warn", "-f", "-", stdin=json.dumps(body))
    assert 'Warning: unknown field "spec.limits.maxIteration"' in done.stderr
    assert api.get("agentrun", body["metadata"]["name"])["spec"]["limits"] == {}


def test_the_fullest_status_of_a_run_survives_a_round_trip(api: Cluster) -> None:
    name = api.made("AgentRun", samples.fullest_spec())
    status = samples.fullest_run_status().as_dict()
    assert api.merge("agentrun", name, {"status": status}, "--subresource=status") == ""
    stored = api.get("agentrun", name)
    assert stored["status"] == status
    assert AgentRun.parse(stored).status == samples.fullest_run_status()


def test_the_fullest_status_of_a_pool_survives_a_round_trip(api: Cluster) -> None:
    name = api.made("SandboxPool", pool_spec())
    status = samples.fullest_pool_status().as_dict()
    assert api.merge("sandboxpool", name, {"status": status}, "--subresource=status") == ""
    stored = api.get("sandboxpool", name)
    assert stored["status"] == status
    assert SandboxPool.parse(stored).status == samples.fullest_pool_status()


def test_a_status_that_our_models_had_to_cut_is_accepted(api: Cluster) -> None:
    name = api.made("AgentRun", run_spec())
    assert (
        api.merge("agentrun", name, {"status": samples.overlong_run_status().as_dict()}, "--subresource=status") == ""
    )


def test_a_status_cannot_be_written_through_the_object_nor_a_spec_through_the_status(api: Cluster) -> None:
    name = api.made("AgentRun", run_spec())
    api.merge("agentrun", name, {"status": {"phase": "Succeeded"}})
    api.merge("agentrun", name, {"spec": {"cancel": True}}, "--subresource=status")
    stored = api.get("agentrun", name)
    assert "status" not in stored
    assert "cancel" not in stored["spec"]


def test_a_pool_gets_its_defaults_and_keeps_what_a_template_says(api: Cluster) -> None:
    template = copy.deepcopy(samples.POD_TEMPLATE)
    template["spec"]["tolerations"] = [{"key": "sandbox", "operator": "Exists"}]
    name = api.made("SandboxPool", {"pod": {"template": template}, "linger": {"max": 0}})
    stored = api.get("sandboxpool", name)["spec"]
    assert stored == {
        "replicas": 3,
        "maxSandboxes": 20,
        "activeDeadlineSeconds": 1800,
        "linger": {"seconds": 300, "max": 0},
        "network": "Isolated",
        "pod": {"template": template},
    }


def test_a_run_gets_no_defaults_for_what_a_workflow_may_set(api: Cluster) -> None:
    assert api.get("agentrun", api.made("AgentRun", run_spec()))["spec"] == run_spec()


def test_the_scale_subresource_reads_and_writes_replicas(api: Cluster) -> None:
    name = api.made("SandboxPool", pool_spec())
    selector = f"{labels.POOL}={name},{labels.ROLE}={labels.ROLE_STANDBY}"
    api.merge("sandboxpool", name, {"status": {"replicas": 2, "selector": selector}}, "--subresource=status")
    api.kubectl("scale", "sandboxpool", name, "-n", api.namespace, "--replicas=5")
    path = f"/apis/{labels.API_VERSION}/namespaces/{api.namespace}/sandboxpools/{name}/scale"
    scale = json.loads(api.kubectl("get", "--raw", path).stdout)
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": selector}
    too_many = api.kubectl("scale", "sandboxpool", name, "-n", api.namespace, "--replicas=21", check=False)
    assert "must be at least replicas" in too_many.stderr


def test_the_columns_show_a_run_and_a_pool(api: Cluster) -> None:
    run = api.made("AgentRun", samples.fullest_spec())
    api.merge("agentrun", run, {"status": samples.plain_run_status().as_dict()}, "--subresource=status")
    head, row = api.kubectl("get", "hbrun", run, "-n", api.namespace).stdout.splitlines()
    assert head.split() == ["NAME", "WORKFLOW", "TARGET", "PHASE", "REASON", "TURNS", "TOKENS", "COST", "AGE"]
    workflow = "w" * 40
    assert row.split()[:8] == [run, workflow, "group/app!42", "Succeeded", "Completed", "7", "1234", "0.042"]
    wide = api.kubectl("get", "hbrun", run, "-n", api.namespace, "-o", "wide").stdout.splitlines()
    assert wide[0].split()[9:] == ["EVENT", "AUTHOR", "SESSION", "SANDBOX", "MODEL", "MESSAGE"]
    assert samples.SESSION in wide[1]

    pool = api.made("SandboxPool", pool_spec())
    api.merge("sandboxpool", pool, {"status": samples.plain_pool_status().as_dict()}, "--subresource=status")
    head, row = api.kubectl("get", "hbpool", pool, "-n", api.namespace).stdout.splitlines()
    assert head.split() == ["NAME", "DESIRED", "STANDBY", "PENDING", "ACTIVE", "LINGERING", "READY", "REASON", "AGE"]
    assert row.split()[:7] == [pool, "3", "2", "1", "4", "1", "False"]


def test_waiting_for_the_condition_finished_ends_once_the_present_spec_was_observed(api: Cluster) -> None:
    name = api.made("AgentRun", run_spec())
    wait = ("wait", "--for=condition=Finished", "--timeout=1s", "-n", api.namespace, f"agentrun/{name}")
    api.merge("agentrun", name, {"status": samples.plain_run_status().as_dict()}, "--subresource=status")
    api.kubectl(*wait)
    # kubectl compares the condition's observedGeneration: a finished run whose spec changes must be observed again
    api.merge("agentrun", name, {"spec": {"ttlSecondsAfterFinished": 60}})
    assert "timed out waiting" in api.kubectl(*wait, check=False).stderr


def test_the_category_lists_both_kinds(api: Cluster) -> None:
    api.made("AgentRun", run_spec())
    api.made("SandboxPool", pool_spec())
    names = api.kubectl("get", labels.CATEGORY, "-n", api.namespace, "-o", "name").stdout
    assert all(f"{kind.model.__name__.lower()}.{labels.GROUP}/" in names for kind in KINDS)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("agentrun.spec.limits", "Wall time in seconds"),
        ("agentrun.status.usage", "US dollars"),
        ("sandboxpool.spec.linger", "0 deletes a member at the end of its run"),
    ],
)
def test_kubectl_explains_the_fields(api: Cluster, path: str, words: str) -> None:
    text = " ".join(api.kubectl("explain", path).stdout.split())
    assert words in text
    assert "<no description>" not in text
