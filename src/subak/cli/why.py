"""`subak why`: where a pod is, which pods share its cards, or what keeps it off every node; or why a gang waits."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from subak.cli import endings, gang, targets, window
from subak.cli.cards import card_data, line, terminal
from subak.cli.connection import Blind, Connection, connected
from subak.cli.drawing import Scene, draw
from subak.cli.explain import answer_data, show_answer
from subak.cli.live import Picture, picture
from subak.cli.options import live_config_option, output_option
from subak.cli.plain import plain
from subak.cli.say import complain, emit
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.card import CardState
from subak.model.node import Node
from subak.model.reason import Refusal
from subak.policy.explain import Explanation
from subak.policy.preempt import waits_for
from subak.scheduler import served
from tinykube.resource import EVENTS, PODS
from tinykube.status import ApiError

LAST = 5


@click.command()
@click.argument("what", metavar="POD|podgroup/NAME")
@live_config_option
@output_option
@connected
async def why(connection: Connection, what: str, output: str, device_config: Interpreter | None) -> int:
    """Say why POD waits, node by node with numbers; or, if it has its place, whom it shares its cards with.

    Of one that has ended or was started again it also tells the exit codes.  POD is a name, NAMESPACE/NAME or pod/NAME.
    With podgroup/NAME, or gang/NAME, say why the pods of a gang wait, and show each of them.

    \b
    Examples:
      subak why too-big
      subak why default/too-big -o json
      subak why podgroup/training

    \b
    Exit codes:
      0  the pod has its place, or has finished; the gang has places for enough of its members
      1  it waits, or it is not there
    """
    group = targets.gang(connection, what)
    if group is not None:
        return await _of_gang(connection, *group, output)
    namespace, name = targets.pod(connection, what)
    full = await connection.client.get(PODS, name, namespace)
    lean = msgspec.convert(full, manifest.Pod, strict=False)
    answer = _Answer(lean, full, await _events(connection, full))
    answer.gang = await gang.of_pod(connection, lean)
    known = await window.of_pod(connection.client, namespace, name) if answer.waits else None
    if known is not None and known.explanation is not None:
        answer.known = known
    else:
        try:
            answer.look(await picture(connection.client, device_config))
        except Blind as blind:
            answer.blind = str(blind)
    if output in ("json", "yaml"):
        emit(answer.data(), output)
    else:
        answer.show(wide=output == "wide")
    return 1 if answer.waits else 0


async def _of_gang(connection: Connection, namespace: str, name: str, output: str) -> int:
    """Answer about all gangs of this name: there may be one in each of several words."""
    found = await gang.named(connection, namespace, name)
    if not found:
        raise ApiError(
            404, "NotFound", f'no pod is in a gang "{name}" in namespace {namespace}, nor is there a PodGroup'
        )
    if output in ("json", "yaml"):
        emit({"gangs": [each.data() for each in found]}, output)
    else:
        for each in found:
            each.show(wide=output == "wide")
    return 1 if any(each.waits for each in found) else 0


async def _events(connection: Connection, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod's events, oldest first; none if the user may not read events."""
    metadata = pod["metadata"]
    about = f"involvedObject.uid={metadata['uid']},involvedObject.name={metadata['name']}"
    try:
        events = (await connection.client.list(EVENTS, metadata["namespace"], fields=about)).items
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


class _Answer:
    """The answer about one pod: from what the controller knows, else from all nodes and pods, else from the pod alone.

    `blind` says why the user sees nothing but the pod.
    """

    def __init__(self, pod: manifest.Pod, full: dict[str, Any], events: list[dict[str, Any]]) -> None:
        self.now: Picture | None = None
        self.known: window.Known | None = None
        self.gang: gang.Gang | None = None
        self.blind = ""
        self.pod = pod
        self.status = full.get("status", {})
        self.events = events
        self.waits = not pod.spec.node_name and not pod.finished

    def look(self, now: Picture) -> None:
        """Answer from all nodes and pods.  Raises ApiError if the pod is not among them any more."""
        if self.pod.key not in now.pods:
            raise ApiError(404, "NotFound", f'pods "{self.pod.name}" was removed in the meantime')
        self.now, self.pod = now, now.pods[self.pod.key]
        self.waits = not self.pod.spec.node_name and not self.pod.finished

    def cards(self) -> list[CardState]:
        """The cards that the pod holds a part of, as far as they can be seen."""
        node = self._node()
        if self.now is None or node is None:
            return []
        return [card for card in self.now.cluster.snapshot.cards(node.name) if self.pod.key in card.tenants]

    def _node(self) -> Node | None:
        return None if self.now is None else self.now.cluster.snapshot.node(self.pod.spec.node_name)

    def _explained(self) -> Explanation | None:
        """What keeps the pod off the nodes, if they can be seen.  Raises Refusal if its request is impossible."""
        if self.known is not None:
            return self.known.explanation
        return None if self.now is None else self.now.cluster.explain(self.pod)

    def _condition(self) -> str:
        """What the scheduler has written to the pod."""
        conditions = self.status.get("conditions", ())
        return next((str(each.get("message", "")) for each in conditions if each.get("type") == "PodScheduled"), "")

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
                explained = self._explained()
                data |= answer_data(self.pod, explained) if explained else {"message": self._condition()}
            except Refusal as refusal:
                data |= {"message": refusal.message, "field": refusal.field, "value": refusal.value}
            data["story"] = self.known.story if self.known else []
        if self.gang is not None:
            data["gang"] = {"name": self.gang.name, "words": self.gang.words, "message": self.gang.sentence}
        node = self._node()
        return data | {"cards": [card_data(node, card) for card in self.cards() if node is not None]}

    def show(self, wide: bool) -> None:
        """Print the answer for people."""
        if self.waits:
            self._show_waiting(wide)
        else:
            self._show_placed()
        if self.gang is not None:
            state = "waits" if self.gang.waits else "runs"
            click.echo(plain(f"  its gang {self.gang.name} {state}: {self.gang.sentence}"))
        for event in self.events[-LAST:]:
            click.echo(plain(f"  event {event.get('reason', '')}: {event.get('message', '')}"))

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
            explained = self._explained()
        except Refusal as refusal:
            complain([f"pod {self.pod.key}: {refusal.message} ({refusal.field})"])
            return
        if explained is None:
            click.echo(plain(f"{self.pod.key} waits: {self._condition() or 'its scheduler has not said why'}"))
            complain((), (), [f"node by node is not shown: {self.blind}"])
        else:
            show_answer(self.pod, explained, wide)
        for sentence in self.known.story if self.known else ():
            click.echo(plain(f"  {sentence}"))

    def _leaving(self) -> list[str]:
        """The less important pods that leave the node on which the pod waits."""
        return sorted(
            key
            for key, each in ({} if self.now is None else self.now.pods).items()
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
        cards, node = self.cards(), self._node()
        if self.blind:
            complain((), (), [f"its cards are not shown: {self.blind}"])
        elif cards and node is not None:
            draw(console, [Scene(node, cards)], names=False)
        elif not self.pod.finished:
            line(console, "  it holds no card")
