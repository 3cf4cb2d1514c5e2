"""Which pods are ours: by the name of their scheduler, unless another one serves it."""

from __future__ import annotations

from subak.model import manifest
from subak.scheduler.served import Served


def pod(scheduler: str) -> manifest.Pod:
    return manifest.Pod(spec=manifest.PodSpec(scheduler_name=scheduler))


def test_pods_of_our_names_are_ours_unless_another_serves_the_name() -> None:
    served = Served(["subak", "volcano", "subak"])
    assert served.names == ("subak", "volcano")
    assert served(pod("subak"))
    assert served(pod("volcano"))
    assert not served(pod("default-scheduler"))
    assert not served(pod("")), "the API server's default is kube-scheduler"
    served.leave({"volcano": "it lives", "koord-scheduler": "not ours anyway"})
    assert served.foreign == {"volcano": "it lives"}
    assert not served(pod("volcano"))
    served.leave({})
    assert served(pod("volcano"))
