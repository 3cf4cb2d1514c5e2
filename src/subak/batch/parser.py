"""Reads a `volcano-scheduler.conf` by Volcano's rules, and says what Volcano keeps to itself.

    invalid     YAML that cannot be read, an action that is not known, none at all, a field of another type,
                `proportion` beside a hierarchical `drf`: the whole text does not count
    a warning   plugins, switches and arguments that are not known, or have no effect here

A warning names the plugin and the key, and the nearest key that is known.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import yaml

from subak.batch import registry, switches
from subak.batch.arguments import Arguments
from subak.batch.configuration import FLAGS, Configuration, Option
from subak.batch.scoring import FLAG, Scoring
from subak.batch.volcano import (
    ABSENT_ACTIONS,
    ABSENT_PLUGINS,
    ACTION_ARGUMENTS,
    ALWAYS,
    ARGUMENTS_WITHOUT_EFFECT,
    FLAGS_WITHOUT_EFFECT,
    HIERARCHY,
    INSTEAD,
)
from tinykube import yaml as reader

_KEYS = ("actions", "tiers", "configurations", "metrics")
_FLAGS = (*FLAGS.values(), FLAG, *FLAGS_WITHOUT_EFFECT)


def parse(text: str, place: str) -> Configuration:
    """The configuration in a text.  Raises ValueError that names the place, the field, the value and the remedy."""
    try:
        return _Reader().read(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{place}: it cannot be read as YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


class _Reader:
    """Reads one text; `warnings` are those so far."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def read(self, text: str) -> Configuration:
        document = reader.read(text)
        for each in document.repeated:
            self.warnings.append(f"line {each.line}: {each.key} stands there twice; the last one counts")
        content = _mapping(document.content, "the text", "actions: and tiers:")
        self._check_keys(content, _KEYS, "")
        actions = _actions(content.get("actions"))
        tiers = tuple(self._tiers(content.get("tiers")))
        arguments = dict(self._action_arguments(content.get("configurations")))
        if content.get("metrics") is not None:
            self.warnings.append("metrics: has no effect: only the plugin usage reads it, which does not exist here")
        off, doubts = switches.read(option for tier in tiers for option in tier)
        self.warnings += doubts
        known = tuple(tuple(option for option in tier if self._is_known(option)) for tier in tiers)
        for option in (option for tier in known for option in tier):
            self._look_at(option)
        found = Configuration(actions, known, arguments, off)
        self.warnings += [*registry.doubts(found), *Scoring(found, str).doubts]
        return replace(found, warnings=tuple(dict.fromkeys(self.warnings)))

    def _tiers(self, content: Any) -> Iterator[tuple[Option, ...]]:
        for number, each in enumerate(_list(content, "tiers")):
            field = f"tiers[{number}]"
            tier = _mapping(each, field, "plugins:")
            self._check_keys(tier, ("plugins",), field)
            plugins = _list(tier.get("plugins"), f"{field}.plugins")
            options = tuple(self._option(plugin, f"{field}.plugins[{i}]") for i, plugin in enumerate(plugins))
            _check_hierarchy(options, field)
            yield options

    def _option(self, content: Any, field: str) -> Option:
        plugin = _mapping(content, field, "name:")
        name = _text(plugin.get("name"), f"{field}.name")
        about = f"plugin {name}" if name else field
        flags: dict[str, bool] = {}
        for key, value in plugin.items():
            if key in ("name", "arguments") or value is None:
                continue
            if key not in _FLAGS:
                self.warnings.append(f"{about}: {key} is not known and is ignored{_nearest(key, _FLAGS)}")
            elif isinstance(value, bool):
                flags[key] = value
            else:
                raise ValueError(
                    f"{field}.{key}: {_shown(value)} is neither true nor false: write one of them, unquoted"
                )
        for key, value in flags.items():
            if FLAGS_WITHOUT_EFFECT.get(key, value) != value:
                self.warnings.append(f"{about}: {key}: {str(value).lower()} has no effect{_why(key)}")
        arguments = _mapping(plugin.get("arguments"), f"{field}.arguments", "the name of an argument")
        return Option(name, flags, arguments)

    def _is_known(self, option: Option) -> bool:
        """Whether we have such a plugin; others are skipped."""
        name = option.name
        if name in registry.PLUGINS:
            return True
        if name in ABSENT_PLUGINS:
            instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            self.warnings.append(f"plugin {name}: Volcano has it, Subak does not; it is skipped{instead}")
        else:
            hint = _nearest(name, registry.PLUGINS) or f": there are {', '.join(registry.PLUGINS)}"
            self.warnings.append(f"plugin {name or 'without a name'}: it is not known and is skipped{hint}")
        return False

    def _look_at(self, option: Option) -> None:
        """Warn of arguments that are not known, and of rules that cannot be switched off."""
        known = registry.PLUGINS[option.name].arguments
        for key in option.arguments:
            why = _entry(ARGUMENTS_WITHOUT_EFFECT, key)
            if why is not None:
                self.warnings.append(f"plugin {option.name}: argument {key} has no effect: {why}")
            elif _entry(known, key) is None:
                hint = _nearest(key, known) or (f": it knows {', '.join(known)}" if known else ": it takes none")
                self.warnings.append(f"plugin {option.name}: argument {key} is not known and is ignored{hint}")
        if option.name == "predicates":
            arguments = Arguments(option.arguments, "plugin predicates", self.warnings)
            for key in (key for key in ALWAYS if not arguments.flag(key, True)):
                self.warnings.append(
                    f"plugin predicates: {key}: false has no effect: Kubernetes' own rules always hold"
                )

    def _action_arguments(self, content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, each in enumerate(_list(content, "configurations")):
            field = f"configurations[{number}]"
            action = _mapping(each, field, "name: and arguments:")
            self._check_keys(action, ("name", "arguments"), field)
            name = _text(action.get("name"), f"{field}.name")
            arguments = _mapping(action.get("arguments"), f"{field}.arguments", "the name of an argument")
            known = ACTION_ARGUMENTS.get(name)
            if known is None:
                hint = _nearest(name, registry.ACTIONS)
                self.warnings.append(f"{field}.name: {_shown(name)} is no action here and is ignored{hint}")
                continue
            for key in arguments:
                if key not in known:
                    hint = _nearest(key, known)
                    self.warnings.append(f"action {name}: argument {key} is not known and is ignored{hint}")
            yield name, arguments

    def _check_keys(self, content: Mapping[str, Any], known: Iterable[str], field: str) -> None:
        for key in content:
            if key not in known:
                path = f"{field}.{key}" if field else key
                self.warnings.append(f"{path} is not known and is ignored{_nearest(key, known)}")


def _actions(content: Any) -> tuple[str, ...]:
    """The actions in their order: each of them must be known."""
    text = _text(content, "actions")
    there = f"there are {', '.join(registry.ACTIONS)}"
    if not text.strip():
        raise ValueError(f"actions: {_shown(text)} has no action: write them with commas between them; {there}")
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name in registry.ACTIONS:
            continue
        if name.lower() in ABSENT_ACTIONS:
            raise ValueError(f"actions: {name} exists in Volcano, but not in Subak: remove it; {there}")
        hint = _nearest(name, registry.ACTIONS)
        raise ValueError(f"actions: {_shown(name)} in {_shown(text)} is no action; {there}{hint}")
    return names


def _check_hierarchy(options: Iterable[Option], field: str) -> None:
    names = {option.name for option in options}
    hierarchical = any(option.name == "drf" and option.flags.get(HIERARCHY) for option in options)
    if hierarchical and "proportion" in names:
        raise ValueError(
            f"{field}.plugins: drf with {HIERARCHY}: true conflicts with proportion in the same tier: "
            f"remove {HIERARCHY} or proportion"
        )


def _why(flag: str) -> str:
    if flag == HIERARCHY:
        return ": queues have no parents here, each is measured by itself"
    return ": Kubernetes' own rules always hold" if flag == "enablePredicate" else ""


def _mapping(content: Any, field: str, wanted: str) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{field}: {_shown(content)} has no keys: write {wanted} there")
    return {str(key): value for key, value in content.items()}


def _list(content: Any, field: str) -> list[Any]:
    if content is None:
        return []
    if not isinstance(content, list):
        raise ValueError(f"{field}: {_shown(content)} is no list: begin each entry with a dash")
    return content


def _text(content: Any, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, dict | list):
        raise ValueError(f'{field}: {_shown(content)} is no text: write one, such as "enqueue, allocate, backfill"')
    return str(content)


def _entry(table: Mapping[str, str], key: str) -> str | None:
    """What a table says of a key; a key that ends in `*` stands for all that begin so."""
    stem = next((each for each in table if each.endswith("*") and key.startswith(each[:-1])), "")
    return table.get(key, table.get(stem))


def _nearest(key: str, known: Iterable[str]) -> str:
    """A hint at the known key that is most like this one."""
    by_lower = {each.rstrip("*").lower(): each for each in known}
    found = get_close_matches(key.lower(), by_lower, 1)
    return f": did you mean {by_lower[found[0]]}?" if found else ""


def _shown(value: Any) -> str:
    """A value for a message, cut if it is long."""
    return reprlib.repr(value)
