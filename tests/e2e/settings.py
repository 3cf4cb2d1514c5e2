"""The settings of a real node's programs, on machines as tests have them: cgroup v1, and root without all rights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import images
from tests.e2e.identities import Identities

SOCKET = "/run/containerd/containerd.sock"
NRI_SOCKET = "/run/nri/nri.sock"


@dataclass(frozen=True)
class Node:
    """What is a node's own."""

    directory: Path
    address: str
    number: int
    cgroup: str
    packages: Path
    nri: bool


def containerd(node: Node) -> str:
    """`containerd.toml`.

    `restrict_oom_score_adj`: without CAP_SYS_RESOURCE every sandbox would fail.
    """
    runtime, nri = 'plugins."io.containerd.cri.v1.runtime"', 'plugins."io.containerd.nri.v1.nri"'
    return f"""
version = 3
root = "{node.directory / "data" / "containerd"}"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{images.PAUSE}"
[{runtime}]
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [{runtime}.cni]
    bin_dirs = ["{node.packages / "usr/lib/cni"}"]
    conf_dir = "{node.directory / "cni"}"
  [{runtime}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{runtime}.containerd.runtimes.runc.options]
      BinaryName = "{node.packages / "usr/sbin/runc"}"
      SystemdCgroup = false
[{nri}]
  disable = {"false" if node.nri else "true"}
  socket_path = "{NRI_SOCKET}"
  plugin_path = "{node.directory / "data" / "nri-plugins"}"
  plugin_config_path = "{node.directory / "data" / "nri-settings"}"
  [{nri}.default_validator]
    enable = true
"""


def network(node: Node) -> str:
    """The network of pods: a bridge of the node's own."""
    subnet = {"subnet": f"10.244.{node.number}.0/24"}
    addresses = {"type": "host-local", "dataDir": str(node.directory / "data" / "addresses"), "ranges": [[subnet]]}
    bridge = {"type": "bridge", "bridge": f"cni{node.number}", "isGateway": True, "ipam": addresses}
    return json.dumps({"cniVersion": "1.0.0", "name": "tests", "plugins": [bridge]})


def kubelet(node: Node, who: Identities, serving: str) -> str:
    """`kubelet.yaml`.  Kubelet refuses cgroup v1 unless it is told not to."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "enforceNodeAllocatable": ["pods"],
        "oomScoreAdj": 0,
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "address": node.address,
        "healthzBindAddress": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(who.certificate("ca"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(who.certificate(serving)),
        "tlsPrivateKeyFile": str(who.key(serving)),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "staticPodPath": str(node.directory / "static"),
        "maxPods": 250,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1m",
        "kubeAPIQPS": 500,  # the default of 50 makes tests wait
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 0,
    }
    return json.dumps(settings, indent=1)
