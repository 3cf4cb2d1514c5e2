"""People who use kubectl see no difference between the embedded API server and a real one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contracts import servers
from tests.contracts.client import Client
from tests.contracts.space import Space, fresh
from tests.e2e import PARTS
from tests.e2e.cluster import Cluster

INSTALLED = shutil.which("kubectl")
PROGRAMS = {"built": str(Path(os.environ.get(PARTS, "")) / "kubectl")} | ({"installed": INSTALLED} if INSTALLED else {})

OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: x}}
data: {key: value, text: "two\\nlines\\n"}
---
apiVersion: v1
kind: Pod
metadata: {name: worker, labels: {app: x}}
spec:
  automountServiceAccountToken: false
  containers:
  - name: c
    image: busybox:1.36
    command: [sleep, "100"]
    env: [{name: A, value: "1"}]
    resources: {limits: {cpu: 500m, memory: 64Mi, volcano.sh/gpu-memory: 1000}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, configMap: {name: settings}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: x}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 2}
"""
CHANGED = OBJECTS.replace("key: value", "key: other").replace("minMember: 2", "minMember: 3")

COMMANDS = """
create -f -
apply -f -
get pods,configmaps,services,podgroups
get pods -o wide
get pods -o name
get pods --show-labels
get pods -l app=x -L app
get pods --no-headers
get pods worker -o jsonpath={.spec.containers[0].image}
get pods -o custom-columns=N:.metadata.name,S:.status.phase
get pod worker -o yaml
get podgroup gang -o json
get pods missing
get nonsense
get pods -l a===b
get all
describe pod worker
describe configmap settings
describe service web --show-events=false
describe podgroup gang
label pod worker tier=front
label pod worker tier=back
label pod worker tier=back --overwrite
label pods --all all=yes
annotate pod worker note=hello
annotate pod worker note-
patch configmap settings -p {"data":{"new":"one"}}
patch configmap settings --type=merge -p {"data":{"new":null}}
patch configmap settings --type=json -p [{"op":"remove","path":"/data/key"}]
patch podgroup gang --type=merge -p {"spec":{"minMember":5}}
patch podgroup gang -p {"spec":{"minMember":5}}
diff -f -
apply -f - --dry-run=server
apply -f -
apply -f -
apply -f - --server-side
apply -f - --server-side --force-conflicts
apply -f - --server-side --field-manager=other
apply set-last-applied -f -
apply view-last-applied configmap settings
replace -f -
set image pod/worker c=busybox:1.37
create configmap literal --from-literal=a=b
create secret generic hidden --from-literal=a=b
create serviceaccount robot
create quota small --hard=pods=5
create priorityclass NS-high --value=10
create service clusterip inner --tcp=80:80
run short --image=busybox --restart=Never --overrides={"spec":{"automountServiceAccountToken":false}} -- sleep 5
get secret hidden -o yaml
describe secret hidden
describe quota small
describe priorityclass NS-high
describe namespace NS
get events --field-selector involvedObject.kind=Pod
logs worker -c nonsense
exec worker -c nonsense -- ls
wait --for=condition=Ready pod/worker --timeout=1s
wait --for=jsonpath={.status.phase}=Pending pod/worker
expose pod worker --port=80 --name=exposed
explain pod.spec.containers.env
explain podgroup.spec
api-resources --api-group=scheduling.volcano.sh
auth whoami
delete pod short
delete configmap literal --wait=false
delete -f -
delete configmap missing
delete configmap missing --ignore-not-found
get pods,configmaps,services,podgroups
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[tuple[Client, Client]]:
    """The embedded server and the real one."""
    with servers.embedded() as embedded, servers.real(cluster.certificate) as real:
        yield embedded, real


class Shell:
    """Runs kubectl in one namespace of one server."""

    def __init__(self, program: str, space: Space, directory: Path, authority: Path) -> None:
        client = space.client
        self._space = space
        self._command = [
            program, f"--server={client.address}", f"--token={client.token}", f"--certificate-authority={authority}",
            f"--namespace={space}", f"--cache-dir={directory / 'cache'}",
        ]  # fmt: skip
        self._environment = {**os.environ, "HOME": str(directory), "KUBECONFIG": str(directory / "none")}

    def run(self, line: str, files: str) -> tuple[int, str]:
        """The exit code and all that is printed, less what differs from run to run."""
        words = [each.replace("NS", self._space.name) for each in line.split(" ")]
        done = subprocess.run(
            [*self._command, *words], input=files, capture_output=True, text=True, env=self._environment, timeout=60
        )
        return done.returncode, steady(done.stdout + done.stderr, self._space)


def steady(text: str, space: Space) -> str:
    """What kubectl prints, less what differs from run to run."""
    text = text.replace(space.client.address, "SERVER").replace(space.name, "NS")
    for pattern, stands_for in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"20[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-9:.]{8,}( ?[+-][0-9]{4}|Z)( [+A-Z0-9]+)?", "TIME"),
        (r"\w{3}, [0-9]{2} \w{3} 20[0-9]{2} [0-9:]{8} [+-][0-9]{4}", "TIME"),
        (r'(resourceVersion"?: "|Resource Version: +)[0-9]+', r"\1SOME"),
        (r"10\.96\.[0-9]+\.[0-9]+ *", "ADDRESS "),
        (r"/tmp/\S+", "FILE"),
        (r"\b[0-9]+(\.[0-9]+)?m?s\b", "AGE"),
        (r" +", " "),
        (r"\n*No LimitRange resource\.\n", "\n"),  # a kind that the embedded server does not have
    ):
        text = re.sub(pattern, stands_for, text)
    if text.startswith("KIND:"):  # an explanation, without its prose
        text = "\n".join(re.findall(r"^(?:[A-Z]+: .*|.*\t<.*)$", text, re.MULTILINE))
    return text


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_kubectl_prints_the_same(program: str, pair: tuple[Client, Client], tmp_path: Path) -> None:
    different = []
    with ExitStack() as stack:
        shells = []
        for number, client in enumerate(pair):
            space = stack.enter_context(fresh(client))
            authority = tmp_path / f"{number}.crt"
            authority.write_text(client.authority)
            shells.append(Shell(program, space, tmp_path / str(number), authority))
        files = OBJECTS
        for line in COMMANDS.strip().splitlines():
            ours, theirs = (shell.run(line, files) for shell in shells)
            if ours != theirs:
                different.append(
                    f"$ kubectl {line}\n--- embedded: {ours[0]}\n{ours[1]}--- real: {theirs[0]}\n{theirs[1]}"
                )
            if line.startswith("diff"):
                files = CHANGED
    assert not different, "\n".join(different)
