"""The manifests of the book, checked without a cluster.

By whom, for each kind: see CHECKED. What no schema says (enums, sizes that must agree, names that must exist) is in
`faults`; each of its rules is shown a manifest that it refuses.
"""

from functools import cache
from pathlib import Path

import pytest
import yaml

import chapters
from distlib.cluster import signal_lead

FOLDER = chapters.ROOT / "book" / "systems" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
#: The version of Kubernetes whose schemas are used.
KUBERNETES = "1.34"
OWN = yaml.safe_load(Path(__file__).with_name("kubernetes_schemas.yaml").read_text(encoding="utf-8"))
#: apiVersion and kind of what the book has, and what checks its fields.
CHECKED = {
    ("v1", "Service"): "kubernetes-validate",
    ("batch/v1", "Job"): "kubernetes-validate",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "kubeflow-trainer-api",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "kubeflow-trainer-api",
    ("kueue.x-k8s.io/v1beta2", "Topology"): "own schema",
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): "own schema",
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): "own schema",
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): "own schema",
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): "own schema",
}
GPU = "nvidia.com/gpu"
LEAD = signal_lead(105.0, 40.0)  # s, of the book's job


def read(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


# --- schemas ---


def by_kubernetes_validate(document):
    why = "kubernetes-validate is not installed: see .ci/install"
    validator = pytest.importorskip("kubernetes_validate", reason=why)
    try:
        validator.validate(document, KUBERNETES, strict=True)
    except (validator.ValidationError, validator.SchemaNotFoundError) as error:
        yield str(getattr(error, "message", error))


def by_kubeflow(document):
    """The fields that a model of the kind does not keep, types that it refuses, and the pod templates by Kubernetes."""
    pytest.importorskip("kubeflow_trainer_api", reason="kubeflow-trainer-api is not installed: see .ci/install")
    from kubeflow_trainer_api import models

    model = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}[document["kind"]]
    try:
        kept = model.from_dict(document).to_dict()
    except ValueError as error:
        yield str(error)
        return
    yield from (f"unknown field {name}" for name in _lost(document, kept))
    for part in document["spec"].get("replicatedJobs", []):
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": part["name"]}}
        yield from by_kubernetes_validate(job | {"spec": part["template"]["spec"]})


def _lost(given, kept, path=""):
    if isinstance(given, dict):
        for name, value in given.items():
            if name not in (kept or {}):
                yield f"{path}.{name}"
            else:
                yield from _lost(value, kept[name], f"{path}.{name}")
    elif isinstance(given, list):
        for i, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(one, other, f"{path}[{i}]")


def by_own_schema(document):
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(OWN[document["kind"]]).iter_errors(document["spec"]):
        yield f"{error.json_path}: {error.message}"


CHECKS = {
    "kubernetes-validate": by_kubernetes_validate, "kubeflow-trainer-api": by_kubeflow, "own schema": by_own_schema,
}  # fmt: skip


def schema_faults(document):
    kind = document.get("apiVersion"), document.get("kind")
    if kind not in CHECKED:
        return [f"nothing checks {kind}"]
    return list(CHECKS[CHECKED[kind]](document))


# --- what schemas miss ---


def jobs(document):
    """(name, spec of a Job) of each Job in a document."""
    if document["kind"] == "Job":
        yield document["metadata"]["name"], document["spec"]
    for part in document["spec"].get("replicatedJobs", []):
        yield part["name"], part["template"]["spec"]


def flag(command, name):
    """The value of --name=value among a command's words."""
    found = [word.partition("=")[2] for word in command if str(word).startswith(f"--{name}=")]
    return int(found[0]) if found and found[0].isdigit() else None


def faults(documents, queue=()):
    """What would go wrong with these documents of one file, though each is well formed."""
    services = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}
    for document in documents:
        for name, spec in jobs(document):
            yield from job_faults(name, spec, services)
        if document["kind"] in ("Job", "JobSet", "TrainJob"):
            yield from queue_faults(document, queue)
        if document["kind"] == "JobSet":
            yield from jobset_faults(document["spec"])
        if document["kind"] == "TrainJob":
            yield from resource_faults("trainer", document["spec"]["trainer"]["resourcesPerNode"])
        if document["kind"] == "PodGroup":
            yield from gang_faults(document, documents)
    yield from own_queue_faults(documents)


def job_faults(name, spec, services):
    template = spec["template"]
    pod = template["spec"]
    if spec.get("completionMode", "NonIndexed") not in ("NonIndexed", "Indexed"):
        yield f"{name}: there is no completionMode {spec['completionMode']}"
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield f"{name}: the restartPolicy of a job is Never or OnFailure"
    if spec.get("completionMode") == "Indexed" and "completions" not in spec:
        yield f"{name}: Indexed needs completions"
    if spec.get("completions") != spec.get("parallelism"):
        yield f"{name}: completions and parallelism differ: the pods do not run all at once"
    if "podFailurePolicy" in spec and pod.get("restartPolicy") != "Never":
        yield f"{name}: a podFailurePolicy needs restartPolicy Never"
    if pod.get("subdomain") and services.get(pod["subdomain"], {}).get("clusterIP") != "None":
        yield f"{name}: no headless Service {pod['subdomain']} gives its pods their names"
    for container in pod["containers"]:
        yield from resource_faults(name, container.get("resources", {}))
        command = container.get("command", [])
        if command and "torchrun" in command[0]:
            asked = container.get("resources", {}).get("limits", {}).get(GPU, 0)
            nodes, pods = flag(command, "nnodes"), spec.get("completions")
            if nodes != pods:
                yield f"{name}: torchrun waits for {nodes} nodes, the job has {pods}"
            if flag(command, "nproc-per-node") != asked:
                yield f"{name}: torchrun starts {flag(command, 'nproc-per-node')} processes on {asked} GPUs"
            if any("JOB_COMPLETION_INDEX" in str(word) for word in command) and spec.get("completionMode") != "Indexed":
                yield f"{name}: only an Indexed job has JOB_COMPLETION_INDEX"
            if pod.get("terminationGracePeriodSeconds", 30) < LEAD:
                yield f"{name}: a pod is killed before a step and a checkpoint are done"


def resource_faults(name, resources):
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if GPU in limits and (type(limits[GPU]) is not int or limits[GPU] < 1):
        yield f"{name}: a limit of {limits[GPU]} GPUs is no whole number"
    if GPU in requests and requests[GPU] != limits.get(GPU):
        yield f"{name}: requests {requests[GPU]} GPUs and limits {limits.get(GPU)}"


def jobset_faults(spec):
    names = [part["name"] for part in spec["replicatedJobs"]]
    for wanted in spec.get("successPolicy", {}).get("targetReplicatedJobs", []):
        if wanted not in names:
            yield f"success is that of {wanted}, which the set does not have"
    if spec.get("successPolicy", {}).get("operator", "All") not in ("All", "Any"):
        yield f"there is no operator {spec['successPolicy']['operator']}"
    strategy = spec.get("failurePolicy", {}).get("restartStrategy", "Recreate")
    if strategy not in ("Recreate", "BlockingRecreate", "InPlaceRestart"):
        yield f"there is no restartStrategy {strategy}"


def queue_faults(document, queue):
    """A job whose queue is not in `queue` (the documents of queue.yaml), or can never hold it."""
    wanted = document["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
    if wanted is None:
        return
    local = {d["metadata"]["name"]: d["spec"]["clusterQueue"] for d in queue if d["kind"] == "LocalQueue"}
    if wanted not in local:
        yield f"there is no LocalQueue {wanted}"
        return
    if not document["spec"].get("suspend"):
        yield "is not suspended: it may start before the queue admits it"
    shared = next(d for d in queue if d["kind"] == "ClusterQueue" and d["metadata"]["name"] == local[wanted])
    flavors = [flavor for group in shared["spec"]["resourceGroups"] for flavor in group["flavors"]]
    quotas = [resource for flavor in flavors for resource in flavor["resources"]]
    most = sum(r["nominalQuota"] + r.get("borrowingLimit", 0) for r in quotas if r["name"] == GPU)
    if gpus(document) > most:
        yield f"asks for {gpus(document)} GPUs of a queue that can have {most}: it waits for ever"
    levels = [level["nodeLabel"] for d in queue if d["kind"] == "Topology" for level in d["spec"]["levels"]]
    for _, spec in jobs(document):
        annotations = spec["template"].get("metadata", {}).get("annotations", {})
        level = annotations.get("kueue.x-k8s.io/podset-required-topology")
        if level and level not in levels:
            yield f"is to lie within one {level}, which is no level of the topology"


def gpus(document):
    if document["kind"] == "TrainJob":
        trainer = document["spec"]["trainer"]
        return trainer["numNodes"] * trainer["resourcesPerNode"]["limits"][GPU]
    return sum(
        spec["completions"] * container.get("resources", {}).get("limits", {}).get(GPU, 0)
        for _, spec in jobs(document) for container in spec["template"]["spec"]["containers"]
    )  # fmt: skip


def gang_faults(group, documents):
    mine = [
        spec for document in documents for _, spec in jobs(document)
        if spec["template"].get("metadata", {}).get("annotations", {}).get("scheduling.k8s.io/group-name")
        == group["metadata"]["name"]
    ]  # fmt: skip
    pods = sum(spec["completions"] for spec in mine)
    if group["spec"]["minMember"] != pods:
        yield f"the gang has {group['spec']['minMember']} members, its jobs {pods} pods, launcher included"
    if any(spec["template"]["spec"].get("schedulerName") != "volcano" for spec in mine):
        yield "a pod of the gang goes to another scheduler"


def own_queue_faults(documents):
    names = {kind: {d["metadata"]["name"] for d in documents if d["kind"] == kind}
             for kind in ("Topology", "ResourceFlavor", "ClusterQueue")}  # fmt: skip
    for document in documents:
        spec = document["spec"]
        if document["kind"] == "LocalQueue" and spec["clusterQueue"] not in names["ClusterQueue"]:
            yield f"there is no ClusterQueue {spec['clusterQueue']}"
        if document["kind"] == "ResourceFlavor" and spec.get("topologyName", "") not in names["Topology"] | {""}:
            yield f"there is no Topology {spec['topologyName']}"
        if document["kind"] == "ClusterQueue":
            for group in spec["resourceGroups"]:
                for flavor in group["flavors"]:
                    if flavor["name"] not in names["ResourceFlavor"]:
                        yield f"there is no ResourceFlavor {flavor['name']}"
                    if [r["name"] for r in flavor["resources"]] != group["coveredResources"]:
                        yield f"the resources of flavor {flavor['name']} are not those that its group covers, in order"


# --- tests ---


@cache
def queue():
    return read(FOLDER / "queue.yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_manifest_is_well_formed(path):
    assert [fault for document in read(path) for fault in schema_faults(document)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_manifest_would_do_what_it_says(path):
    assert list(faults(read(path), queue())) == []


def test_every_kind_that_has_a_checker_is_in_the_book():
    assert {(d["apiVersion"], d["kind"]) for path in FILES for d in read(path)} == set(CHECKED)


def broken(name, old, new):
    """A file of the book with one change, as documents."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert old in text
    return list(yaml.safe_load_all(text.replace(old, new, 1)))


@pytest.mark.parametrize("name, old, new, fault", [
    ("indexed-job.yaml", "completionMode", "compleetionMode", "compleetionMode"),
    ("indexed-job.yaml", "parallelism: 32", "parallelism: many", "many"),
    ("indexed-job.yaml", '            status: "True"\n', "", "status"),
    ("indexed-job.yaml", "batch/v1", "batch/v2", "nothing checks"),
    ("jobset.yaml", "maxRestarts", "maxRestartz", "maxRestartz"),
    ("jobset.yaml", "completionMode", "compleetionMode", "compleetionMode"),
    ("jobset.yaml", "maxRestarts: 100", "maxRestarts: often", "valid integer"),
    ("trainjob.yaml", "numNodes", "numNode", "numNode"),
    ("queue.yaml", "nominalQuota: 512", "quota: 512", "quota"),
    ("queue.yaml", "BestEffortFIFO", "Fifo", "Fifo"),
    ("queue.yaml", "coveredResources", "covers", "covers"),
    ("queue.yaml", "topologyName", "topology", "topology"),
    ("queue.yaml", "nodeLabel: kubernetes.io/hostname", "label: host", "label"),
    ("queue.yaml", "clusterQueue: research", "queue: research", "queue"),
    ("volcano.yaml", "minMember: 33", "minMember: all", "all"),
    ("volcano.yaml", "mode: hard", "mode: strict", "strict"),
])  # fmt: skip
def test_a_schema_refuses(name, old, new, fault):
    assert any(fault in found for document in broken(name, old, new) for found in schema_faults(document))


@pytest.mark.parametrize("name, old, new, fault", [
    ("indexed-job.yaml", "Indexed", "Indexxed", "no completionMode"),
    ("indexed-job.yaml", "restartPolicy: Never", "restartPolicy: Always", "Never or OnFailure"),
    ("indexed-job.yaml", "restartPolicy: Never", "restartPolicy: OnFailure", "podFailurePolicy needs"),
    ("indexed-job.yaml", "  completions: 32\n", "", "Indexed needs completions"),
    ("indexed-job.yaml", "parallelism: 32", "parallelism: 16", "not run all at once"),
    ("indexed-job.yaml", "clusterIP: None", "clusterIP: 10.0.0.1", "no headless Service"),
    ("indexed-job.yaml", "--nnodes=32", "--nnodes=31", "waits for 31 nodes"),
    ("indexed-job.yaml", "--nproc-per-node=8", "--nproc-per-node=4", "4 processes on 8 GPUs"),
    ("indexed-job.yaml", "completionMode: Indexed", "completionMode: NonIndexed", "JOB_COMPLETION_INDEX"),
    ("indexed-job.yaml", "Seconds: 150", "Seconds: 90", "killed before"),
    ("indexed-job.yaml", "      terminationGracePeriodSeconds: 150", "      # default", "killed before"),
    ("indexed-job.yaml", "nvidia.com/gpu: 8\n              cpu", "nvidia.com/gpu: 4\n              cpu", "requests 4"),
    ("indexed-job.yaml", "limits:\n              nvidia.com/gpu: 8", "limits:\n              nvidia.com/gpu: 8.5",
     "no whole number"),
    ("indexed-job.yaml", "queue-name: research", "queue-name: resaerch", "no LocalQueue"),
    ("indexed-job.yaml", "suspend: true", "suspend: false", "not suspended"),
    ("indexed-job.yaml", "topology.example.com/leaf", "topology.example.com/laef", "no level"),
    ("jobset.yaml", "[worker]", "[launcher]", "does not have"),
    ("jobset.yaml", "operator: All", "operator: Most", "no operator"),
    ("jobset.yaml", "BlockingRecreate", "Restart", "no restartStrategy"),
    ("jobset.yaml", "completions: 32", "completions: 320", "waits for ever"),
    ("trainjob.yaml", "numNodes: 32", "numNodes: 97", "waits for ever"),
    ("trainjob.yaml", "limits:\n        nvidia.com/gpu: 8", "limits:\n        nvidia.com/gpu: 4", "requests 8"),
    ("volcano.yaml", "minMember: 33", "minMember: 32", "launcher included"),
    ("volcano.yaml", "schedulerName: volcano", "schedulerName: default-scheduler", "another scheduler"),
    ("queue.yaml", "clusterQueue: research", "clusterQueue: all", "no ClusterQueue"),
    ("queue.yaml", "topologyName: fabric", "topologyName: fibre", "no Topology"),
    ("queue.yaml", "name: h100\n          resources", "name: a100\n          resources", "no ResourceFlavor"),
    ("queue.yaml", "[nvidia.com/gpu, cpu, memory]", "[nvidia.com/gpu, memory, cpu]", "in order"),
])  # fmt: skip
def test_a_rule_refuses_what_schemas_let_pass(name, old, new, fault):
    documents = broken(name, old, new)
    assert any(fault in found for found in faults(documents, queue())), list(faults(documents, queue()))


def test_no_schema_notices_the_wrong_size_of_a_gang_or_a_misspelt_mode():
    for name, old, new in [("volcano.yaml", "minMember: 33", "minMember: 32"),
                           ("indexed-job.yaml", "Indexed", "Indexxed"),
                           ("indexed-job.yaml", "restartPolicy: Never", "restartPolicy: Always")]:  # fmt: skip
        assert not any(schema_faults(document) for document in broken(name, old, new))
