"""All checks, in the groups and the order in which they are shown."""

from __future__ import annotations

from subak.doctor import Checks
from subak.doctor.cluster import Cluster, admission, api, controller, gangs, ledger, nodes, published, rights, settings
from subak.doctor.node import Computer, agent, driver, kubelet, library, nri, paths, runtime, security

CLUSTER: Checks[Cluster] = {
    "API server": {
        "version": api.version,
        "clock": api.clock,
        "user": api.user,
    },
    "controller": {
        "leader": controller.leader,
        "replicas": controller.replicas,
        "versions": controller.versions,
        "device config": settings.config,
        "scheduler names": settings.names,
        "rights": rights.accounts,
    },
    "gangs": {
        "configuration": gangs.configuration,
        "groups and queues": gangs.objects,
    },
    "admission": {
        "webhooks": admission.webhooks,
        "certificates": admission.certificates,
        "webhook answers": admission.answers,
        "policy": admission.records,
        "records guarded": admission.guarded,
    },
    "nodes": {
        "agents": nodes.agents,
        "agents say": nodes.windows,
        "container runtimes": nodes.runtimes,
        "device plugins": nodes.plugins,
        "other systems": nodes.others,
        "capacity": published.capacity,
        "labels": published.labels,
    },
    "cards": {
        "records": ledger.readable,
        "overcommitted": ledger.overcommitted,
        "stuck pods": ledger.stuck,
    },
}

NODE: Checks[Computer] = {
    "container runtime": {
        "version": runtime.reachable,
        "NRI": nri.switched_on,
        "default validator": nri.validator,
        "CDI": nri.cdi,
    },
    "kubelet": {
        "kubelet": kubelet.running,
        "sockets": kubelet.sockets,
        "cgroups": kubelet.cgroups,
    },
    "driver": {
        "NVIDIA": driver.answers,
        "device nodes": driver.device_nodes,
        "persistence": driver.persistence,
    },
    "libsubak": {
        "library": library.loadable,
        "on the host": library.installed,
        "turns": paths.turns,
        "host paths": paths.writable,
        "host preload": paths.preload,
        "security": security.modules,
    },
    "agent": {
        "lock": agent.lock,
        "window": agent.window,
        "other systems": agent.others,
        "clock": agent.clock,
    },
}
