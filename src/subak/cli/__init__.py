"""The command line: one file a command.

Exit codes: 0 all well, 1 something waits, is refused or cannot be had, 2 bad input, 130 ended by Ctrl-C.  `subak run`
and `subak exec` end with the code of their command.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from subak import __version__
from subak.cli import streams

COMMANDS = {
    "up": "Start a whole cluster on this machine.",
    "backup": "Copy the state of such a cluster into a file, while it runs.",
    "restore": "Make a state directory from a backup.",
    "demo": "Start one, run the examples on it, and show who shares which card.",
    "controller": "Schedule the pods of a Kubernetes cluster.",
    "agent": "Serve the cards of a node of a Kubernetes cluster.",
    "run": "Run one command with a slice of a local GPU.",
    "top": "Draw every card with those who share it.",
    "nodes": "List the nodes and what is taken of their cards.",
    "queues": "Show what each queue holds of what it deserves, and who waits in it.",
    "why": "Say why a pod waits, or whom it shares its cards with.",
    "doctor": "Check the cluster or this node, and say what to do.",
    "get": "Show objects.",
    "describe": "Show objects in detail, with their events.",
    "apply": "Create or change objects from files.",
    "delete": "Delete objects.",
    "wait": "Wait until objects are as you want them.",
    "create": "Create a namespace.",
    "logs": "Print what a container printed.",
    "exec": "Run a program in a container.",
    "place": "Decide where pods go, on files.",
    "explain": "Say why pods fit where they fit, on the live cluster or on files.",
    "extender": "Print the configuration with which a kube-scheduler asks Subak for cards.",
    "completion": "Print a script that completes commands in your shell.",
}


class _Lazy(click.Group):
    """Imports a command's module only when it is used, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"subak.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="subak")
def cli() -> None:
    """Subak shares GPUs of many vendors among many tasks.

    Pods keep the YAML they have: HAMi, Volcano and Koordinator requests are understood side by side and drawn from one
    ledger of the same cards.

    \b
    Try it:
      subak demo                         a short tour, without a GPU
      subak up                           a cluster on this machine; then, in another terminal:
      subak apply -f examples/shared     pods of three systems for one card
      subak top                          who shares which card
      subak why too-big                  why a pod waits

    \b
    Without a cluster:
      subak run --memory 8Gi -- python train.py
      subak place -f pod.yaml --cluster nodes.yaml
    """


def main(**options: Any) -> None:
    """Entry point of `subak` and `kubectl-subak`."""
    with streams.guarded():
        cli(**options)
