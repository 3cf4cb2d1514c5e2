from __future__ import annotations

from typing import Any

import msgspec

from subak.local.kubelet.services import Service, variables


def service(name: str, namespace: str, address: str, *ports: dict[str, Any]) -> Service:
    made = {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": list(ports)}}
    return msgspec.convert(made, Service)


REDIS = service(
    "redis-master", "prod", "10.0.0.7", {"port": 6379, "name": "main-port"}, {"port": 53, "protocol": "UDP"}
)
KUBERNETES = service("kubernetes", "default", "10.0.0.1", {"port": 443, "name": "https"})
HEADLESS = service("db", "prod", "None", {"port": 5432})


def test_a_service_is_told_in_all_the_usual_variables() -> None:
    assert variables([REDIS], "prod", True) == {
        "REDIS_MASTER_SERVICE_HOST": "10.0.0.7",
        "REDIS_MASTER_SERVICE_PORT": "6379",
        "REDIS_MASTER_SERVICE_PORT_MAIN_PORT": "6379",
        "REDIS_MASTER_PORT": "tcp://10.0.0.7:6379",
        "REDIS_MASTER_PORT_6379_TCP": "tcp://10.0.0.7:6379",
        "REDIS_MASTER_PORT_6379_TCP_PROTO": "tcp",
        "REDIS_MASTER_PORT_6379_TCP_PORT": "6379",
        "REDIS_MASTER_PORT_6379_TCP_ADDR": "10.0.0.7",
        "REDIS_MASTER_PORT_53_UDP": "udp://10.0.0.7:53",
        "REDIS_MASTER_PORT_53_UDP_PROTO": "udp",
        "REDIS_MASTER_PORT_53_UDP_PORT": "53",
        "REDIS_MASTER_PORT_53_UDP_ADDR": "10.0.0.7",
    }


def test_pods_see_their_own_namespace_and_the_api_server_and_no_headless_service() -> None:
    everything = [REDIS, KUBERNETES, HEADLESS]
    prod = variables(everything, "prod", True)
    assert {name.partition("_")[0] for name in prod} == {"REDIS", "KUBERNETES"}
    assert {name.partition("_")[0] for name in variables(everything, "prod", False)} == {"KUBERNETES"}
    assert {name.partition("_")[0] for name in variables(everything, "test", True)} == {"KUBERNETES"}
