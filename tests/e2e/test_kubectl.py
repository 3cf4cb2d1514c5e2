"""kubectl's own commands print the same on the embedded server as on a real one; with an old kubectl and a new one.

The story needs no kubelet: a pod without a scheduler stays Pending on both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from tests.contracts import servers
from tests.contracts.client import Client
from tests.e2e import PARTS
from tests.e2e.cluster import Cluster
from tests.support.wording import compared

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: demo}}
spec:
  schedulerName: nobody
  automountServiceAccountToken: false
  containers:
  - {name: c, image: busybox, command: [sleep, "1"], resources: {limits: {cpu: 100m, memory: 64Mi}}}
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: busybox}]}
"""
STRANGE = DEPLOYMENT.replace("Deployment", "NoSuchKind")

STORY = """
create namespace story
config set-context --current --namespace=story
apply -f pod.yaml
apply -f pod.yaml
get pods
get pods -o wide
get pod a -o jsonpath={.spec.containers[0].resources}
get pods --show-labels
get pods -l app=demo -o name
get pods -l app!=demo
get pods --field-selector=status.phase=Running
describe pod a
label pod a tier=x
label pod a tier=y
label pod a tier=y --overwrite
annotate pod a note=hello
patch pod a -p {"metadata":{"labels":{"tier":"z"}}}
patch pod a --type=json -p [{"op":"test","path":"/metadata/labels/tier","value":"q"}]
patch pod a --type=merge -p {"metadata":{"labels":{"tier":null}}}
set image pod/a c=alpine
apply -f pod.yaml
apply --server-side -f pod.yaml
apply --server-side --force-conflicts -f pod.yaml
diff -f pod.yaml
replace -f pod.yaml --dry-run=server
create configmap config --from-literal=k=v --from-literal=l=w
get configmap config -o yaml
create secret generic secret --from-literal=k=v
get secrets
describe secret secret
create quota quota --hard=pods=1
create serviceaccount robot
create priorityclass high --value=1000
get priorityclass high
delete priorityclass high
create service clusterip web --tcp=80:80
get service web -o jsonpath={.spec.ports}
run b --image=busybox
wait --for=jsonpath={.status.phase}=Pending pod/a
get all
auth can-i create pods
api-resources --api-group=scheduling.k8s.io
apply -f deployment.yaml
apply -f deployment.yaml
get deployments -o wide
scale deployment web --replicas=3
scale deployment web --replicas=2 --current-replicas=7
set image deployment/web c=alpine
rollout restart deployment/web
rollout pause deployment/web
rollout status deployment/web --timeout=1s
apply -f strange.yaml
create -f strange.yaml
apply -f strange.yaml --server-side
create job once --image=busybox -- true
create job once --image=busybox -- true
get jobs
delete job once
delete deployment web --cascade=orphan
get deployments,jobs
get pod nobody
get gizmos
create -f pod.yaml
exec a -- true
logs a
cordon nowhere
delete pod a
delete pod a
get events --field-selector=involvedObject.kind!=Service
delete namespace story
"""
"""Without events of services: a real server may look at their addresses at that moment, and tell what it repairs."""

CHANGING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\b10\.\d+\.\d+\.\d+\b", "IP"),
    (r"resourceVersion: \"\d+\"", "resourceVersion: N"),
    (r"\b\d+m?\d*s\b", "AGE"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} .*", "DATE"),
    (r" +", " "),
    (r"https://[^ \"]*", "URL"),
)


def kubectls() -> list[Path]:
    """The one that was built, and that of the machine."""
    built = Path(os.environ[PARTS]) / "kubectl"
    found = shutil.which("kubectl")
    return [built, Path(found)] if found else [built]


def told(kubectl: Path, kubeconfig: Path, folder: Path) -> list[str]:
    """What the story prints, with what differs from run to run taken out."""
    mine = folder / "kubeconfig"
    mine.write_bytes(kubeconfig.read_bytes())
    for name, content in (("pod", POD), ("deployment", DEPLOYMENT), ("strange", STRANGE)):
        (folder / f"{name}.yaml").write_text(content)
    answers = []
    for line in STORY.strip().splitlines():
        done = subprocess.run(
            [kubectl, *line.split(" ")],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(mine)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        text = compared(done.stdout)
        for pattern, word in CHANGING:
            text = re.sub(pattern, word, text)
        answers.append(f"$ kubectl {line}\n{text}exit {done.returncode}")
    return answers


@pytest.mark.parametrize("kubectl", kubectls(), ids=["built", "installed"][: len(kubectls())])
def test_kubectl_tells_the_same_story(kubectl: Path, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "embedded").mkdir()
    real = told(kubectl, cluster.kubeconfig, tmp_path / "real")
    with servers.embedded() as embedded:
        ours = told(kubectl, _kubeconfig(embedded, tmp_path / "to-embedded"), tmp_path / "embedded")
    different = [(mine, theirs) for mine, theirs in zip(ours, real, strict=True) if mine != theirs]
    assert not different, "\n".join(f"embedded: {mine}\nreal:     {theirs}\n" for mine, theirs in different)


def _kubeconfig(client: Client, path: Path) -> Path:
    cluster = {"server": client.address, "certificate-authority-data": b64encode(client.authority.encode()).decode()}
    content = {
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": client.token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
    path.write_text(json.dumps(content))
    return path
