"""The mark of our own agent on a node, and the Lease by which it shows that it lives.

    Node   annotation `subak.io/agent`; its value is the way in which containers get their cards, `nri` or `plugin`
    Lease  in the namespace `subak-system`, named after the node, with the label `subak.io/agent`

A marked node needs nothing but the Binding: our agent knows each pod by its UID.  Where the runtime asks it, the
Binding also makes the runtime refuse the pod's containers while our agent does not answer.  On other nodes vendors'
agents guess which pod they serve, so pods take turns there (`Agent.lock`).  A mark without a live Lease means that our
agent is dead: new pods are refused, and running ones keep what they hold.
"""

from __future__ import annotations

from datetime import datetime

from subak.model import manifest

MARK = "subak.io/agent"
NAMESPACE = "subak-system"

NRI, PLUGIN = "nri", "plugin"
"""The ways: the container runtime asks the agent about each container; or variables that refer to annotations of the
pod, beside kubelet's device-plugin API, where the runtime does not ask."""


PLUGIN_NAME = "subak"
"""The name of our agent among the NRI plugins of a container runtime."""
REQUIRED = "required-plugins.noderesource.dev"
"""Annotation of a pod: the NRI plugins without which containerd creates no container of it, where its default validator
is on.  With `/pod` or `/container.NAME` behind it, the narrower one counts."""


def marked(node: manifest.Node) -> bool:
    """Whether our agent runs on the node."""
    return MARK in node.annotations


def way(node: manifest.Node) -> str:
    """How containers get their cards on the node; empty where our agent does not run.

    A mark without a known way is of an agent that the runtime asks.
    """
    if not marked(node):
        return ""
    return PLUGIN if node.annotations[MARK] == PLUGIN else NRI


def required(way: str) -> dict[str, str]:
    """The annotations by which a pod with cards on a node of this way runs under our agent, or not at all."""
    return {REQUIRED: f'["{PLUGIN_NAME}"]'} if way == NRI else {}


def everywhere(node: manifest.Node) -> bool:
    """Our agent runs on all nodes, as on one machine."""
    return True


def lives_until(lease: manifest.Lease) -> float:
    """Until when the agent lives unless it renews its Lease, in seconds since 1970; 0 if that cannot be read."""
    spec = lease.spec
    try:
        return datetime.fromisoformat(spec.renew_time or "").timestamp() + (spec.lease_duration_seconds or 0)
    except ValueError:
        return 0.0
