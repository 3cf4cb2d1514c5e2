from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tinykube

README = Path(tinykube.__file__).with_name("README.md")


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{'hello': 'world'}\n", "")


def test_the_readme_names_modules_that_are_there() -> None:
    tables = re.findall(r"^\| ((?:`[a-z_/]+`(?:, )?)+) \|", README.read_text(), re.MULTILINE)
    names = {name for cell in tables for name in re.findall(r"`([a-z_]+)/?`", cell)}
    folders = (README.parent, README.parent / "server")
    assert names
    assert all(any((each / f"{name}.py").exists() or (each / name).is_dir() for each in folders) for name in names)
