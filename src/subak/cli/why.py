"""`subak why`: where a pod is, which pods share its cards, or what keeps it off every node."""

from __future__ import annotations

from typing import Any

import click

from subak.cli import endings, targets
from subak.cli.cards import card_data, line, terminal
from subak.cli.connection import Connection, connected
from subak.cli.drawing import Scene, draw
from subak.cli.explain import answer_data, show_answer
from subak.cli.live import Picture, picture
from subak.cli.options import live_config_option, output_option
from subak.cli.say import complain, emit
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.card import CardState
from subak.model.node import Node
from subak.model.reason import Refusal
from subak.policy.preempt import waits_for
from subak.scheduler import served
from tinykube.resource import EVENTS, PODS
from tinykube.status import ApiError

LAST = 5


@click.command()
@click.argument("pod", metavar="POD")
@live_config_option
@output_option
@connected
async def why(connection: Connection, pod: str, output: str, device_config: Interpreter | None) -> int:
    """Say why POD waits, node by node with numbers; or, if it has its place, whom it shares its cards with.

    Of one that has ended or was started again it also tells the exit codes.  POD is a name, NAMESPACE/NAME or pod/NAME.

    \b
    Examples:
      subak why too-big
      subak why default/too-big -o json

    \b
    Exit codes:
      0  the pod has its place, or has finished
      1  it waits, or it is not there
    """
    namespace, name = targets.pod(connection, pod)
    full = await connection.client.get(PODS, name, namespace)
    now = await picture(connection.client, device_config)
    key = f"{full['metadata']['namespace']}/{name}"
    if key not in now.pods:
        raise ApiError(404, "NotFound", f'pods "{name}" was removed in the meantime')
    answer = _Answer(now, now.pods[key], full, await _events(connection, full))
    if output in ("json", "yaml"):
        emit(answer.data(), output)
    else:
        answer.show(wide=output == "wide")
    return 1 if answer.waits else 0


async def _events(connection: Connection, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod's events, oldest first."""
    metadata = pod["metadata"]
    about = f"involvedObject.uid={metadata['uid']},involvedObject.name={metadata['name']}"
    events = (await connection.client.list(EVENTS, metadata["namespace"], fields=about)).items
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


class _Answer:
    """The answer about one pod."""

    def __init__(self, now: Picture, pod: manifest.Pod, full: dict[str, Any], events: list[dict[str, Any]]) -> None:
        self.now = now
        self.pod = pod
        self.status = full.get("status", {})
        self.events = events
        self.waits = not pod.spec.node_name and not pod.finished

    def cards(self) -> list[CardState]:
        """The cards that the pod holds a part of."""
        if not self.pod.spec.node_name or self.now.cluster.snapshot.node(self.pod.spec.node_name) is None:
            return []
        cards = self.now.cluster.snapshot.cards(self.pod.spec.node_name)
        return [card for card in cards if self.pod.key in card.tenants]

    def _node(self) -> Node:
        node = self.now.cluster.snapshot.node(self.pod.spec.node_name)
        assert node is not None, "it has cards"
        return node

    def data(self) -> dict[str, Any]:
        """The answer as data for scripts."""
        data: dict[str, Any] = {
            "namespace": self.pod.namespace,
            "name": self.pod.name,
            "phase": self.status.get("phase", ""),
            "node": self.pod.spec.node_name,
            "message": self.status.get("message", ""),
            "containers": list(endings.of_containers(self.status)),
        }
        if self.waits:
            data["nominated"] = self.pod.status.nominated_node_name
            data["waitsFor"] = self._leaving()
            try:
                data |= answer_data(self.pod, self.now.cluster.explain(self.pod))
            except Refusal as refusal:
                data |= {"message": refusal.message, "field": refusal.field, "value": refusal.value}
        return data | {"cards": [card_data(self._node(), card) for card in self.cards()]}

    def show(self, wide: bool) -> None:
        """Print the answer for people."""
        if self.waits:
            self._show_waiting(wide)
        else:
            self._show_placed()
        for event in self.events[-LAST:]:
            click.echo(f"  event {event.get('reason', '')}: {event.get('message', '')}")

    def _show_waiting(self, wide: bool) -> None:
        if self.pod.metadata.deletion_timestamp is not None:
            click.echo(f"{self.pod.key} is being deleted")
            return
        if not served.on_one_machine(self.pod):
            names = ", ".join(served.ON_ONE_MACHINE)
            click.echo(f"{self.pod.key} waits for its scheduler, {self.pod.spec.scheduler_name!r}; ours are {names}")
        if self.pod.status.nominated_node_name:
            click.echo(f"{self.pod.key} {waits_for(self.pod.status.nominated_node_name, self._leaving())}")
        try:
            show_answer(self.pod, self.now.cluster.explain(self.pod), wide)
        except Refusal as refusal:
            complain([f"pod {self.pod.key}: {refusal.message} ({refusal.field})"])

    def _leaving(self) -> list[str]:
        """The less important pods that leave the node on which the pod waits."""
        return sorted(
            key
            for key, each in self.now.pods.items()
            if each.spec.node_name
            and each.spec.node_name == self.pod.status.nominated_node_name
            and each.priority < self.pod.priority
            and (each.preempted or each.metadata.deletion_timestamp is not None)
        )

    def _show_placed(self) -> None:
        console = terminal()
        phase = self.status.get("phase", "")
        detail = ": ".join(part for part in (self.status.get("reason", ""), self.status.get("message", "")) if part)
        where = f" on {self.pod.spec.node_name}" if self.pod.spec.node_name else ""
        line(console, (self.pod.key, "green"), f" is {phase}{where}{f' ({detail})' if detail else ''}")
        for container in endings.of_containers(self.status):
            if text := endings.sentence(container):
                line(console, f"  {text}")
        cards = self.cards()
        if cards:
            draw(console, [Scene(self._node(), cards)], names=False)
        if not cards and not self.pod.finished:
            line(console, "  it holds no card")
