"""Files: YAML and JSON in, objects out; every error names the file, the line and what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from subak.cli.files import Document, FileError, documents
from tests.support.bombs import BOMB
from tests.support.commands import Content, asking, offering, place, subak, write

GOOD = offering("good", 1000)
POD = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"


def errors(folder: Path, content: Content) -> list[str]:
    answer = place(folder, content, GOOD)
    assert answer.code == 2
    assert answer.data["placed"] == []
    return [line.removeprefix("error: ") for line in answer.err.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ("kind: Pod\nmetadata: name: p\n", ":2:15", "not valid YAML: mapping values are not allowed"),
        ("kind: Pod\nkind: Pod\n", ":2:1", "not valid YAML: key 'kind' is given twice"),
        ("kind: Pod\nmetadata:\n  labels: {a: b, a: c}\n", ":3:18", "key 'a' is given twice"),
        ("kind: Pod\n\tmetadata: {}\n", ":2:1", "found a tab character"),
        ("kind: Pod\nmetadata: {name: p\n", ":3:1", "did not find expected ',' or '}'"),
        ("kind: Pod\n---\n\nkind: [\n", ":5:1", "did not find expected node content"),
        ("kind: *name\n", ":1:7", "found undefined alias"),
        ("kind: !!python/name:os.system\n", ":1:7", "could not determine a constructor"),
        ("kind: Pod\nname: a\x07b\n", ":2:8", "character #x0007 is not allowed; remove it"),
        ("size: " + "9" * 5000, ":1:7", "not usable: "),
        ("kind: " + "[" * 100_000, ":1:106", "not valid YAML: exceeded max depth of 100"),
        ("kind: Pod\n---\n" + BOMB, ":8:8", "not valid YAML: document contains excessive aliasing"),
        ("metadata: {name: p}\n", ":1", "not a Kubernetes object: it has no kind"),
        ("- a\n- b\n", ":1", "not a Kubernetes object: expected kind, metadata and so on, got ['a', 'b']"),
        ("kind: List\nitems: [{kind: Secret}, 7]\n", ":1: items[1]", "not a Kubernetes object"),
        ("", "", "it is empty: expected Kubernetes objects"),
        ("# nothing\n---\n...\n", "", "it is empty: expected Kubernetes objects"),
        (b"kind: \xff\xfe\n", "", "cannot be read: it is not UTF-8 text"),
    ],
)
def test_an_error_names_the_place_and_the_problem(tmp_path: Path, content: Content, place: str, problem: str) -> None:
    found = errors(tmp_path, content)
    assert any(line.startswith(f"{tmp_path / 'pods.yaml'}{place}: ") and problem in line for line in found), found


def test_a_key_on_the_line_of_its_parent_has_a_remedy(tmp_path: Path) -> None:
    answer = place(tmp_path, "kind: Pod\nmetadata:\n  annotations: a/b: c\n", GOOD)
    assert "pods.yaml:3:19: not valid YAML: mapping values are not allowed in this context; " in answer.err
    assert "belongs on its own line, indented below it, as in\n  annotations:\n    key: value\n" in answer.err


@pytest.mark.parametrize(("option", "other"), [("-f", "--cluster"), ("--cluster", "-f")])
def test_a_file_that_cannot_be_read(tmp_path: Path, option: str, other: str) -> None:
    good = write(tmp_path / "good.yaml", [GOOD, asking(1)])
    answer = subak("place", option, tmp_path / "none.yaml", other, good)
    assert answer.code == 2
    assert f"error: {tmp_path}/none.yaml: cannot be read: No such file or directory" in answer.err


def test_the_files_of_a_directory_are_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "pods"
    folder.mkdir()
    write(folder / "2.yaml", {**asking(1), "metadata": {"name": "second"}})
    write(folder / "1.yaml", {**asking(1), "metadata": {"name": "first"}})
    (folder / "notes.txt").write_text("{")
    answer = subak("place", "-f", folder, "--cluster", write(tmp_path / "cluster.yaml", GOOD), "-o", "json")
    assert [each["name"] for each in answer.data["placed"]] == ["first", "second"]


def test_a_directory_without_objects(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = subak("place", "-f", tmp_path / "empty", "--cluster", write(tmp_path / "cluster.yaml", GOOD))
    assert (answer.code, "empty: the directory holds no .yaml" in answer.err) == (2, True)


def test_standard_input_that_is_no_text(tmp_path: Path) -> None:
    answer = subak("place", "-f", "-", "--cluster", write(tmp_path / "cluster.yaml", GOOD), stdin=b"\xff\xfe")
    assert (answer.code, answer.err) == (2, "error: -: cannot be read: it is not UTF-8 text\n")


@pytest.mark.parametrize(
    "text",
    [
        POD,
        f"--- {POD}",
        f"%YAML 1.1\n---\n{POD}\n",
        f"# first\n--- # second\n{POD}\n...\n# third\n",
        f"...\n{POD}\n---\n",
        f"\ufeff{POD}",
        POD.replace("{kind", "{\r\nkind"),
        json.dumps(yaml.safe_load(POD), indent=2),
        '{"kind": "PodList", "items": [' + json.dumps(yaml.safe_load(POD)) + "]}",
        POD.replace("name: p", "name: p, annotations: {text: '---\n\n   --- '}"),
        POD.replace("name: p", "name: p, creationTimestamp: 2024-01-31T00:00:00Z"),
    ],
)
def test_every_form_of_a_document_is_read(tmp_path: Path, text: str) -> None:
    answer = place(tmp_path, text, GOOD)
    assert (answer.code, answer.nodes, answer.err) == (0, {"p": "good"}, "")


def test_documents_know_where_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path / "two.yaml", f"# one\n{POD}\n---\nbroken: [\n---\n\n{POD}\n")
    first, second, third = documents(str(path))
    assert isinstance(first, Document)
    assert isinstance(second, FileError)
    assert isinstance(third, Document)
    assert (first.place, third.place) == (f"{path}:1", f"{path}:5")
    assert str(second).startswith(f"{path}:5:1: not valid YAML")


def test_an_empty_list_is_no_error(tmp_path: Path) -> None:
    for items in ("[]", "null"):
        answer = place(tmp_path, f"{{kind: List, items: {items}}}", GOOD)
        assert (answer.code, answer.err) == (0, "")
