import pytest

from subak.batch import registry
from tests.batch.doubles import DOUBLES


@pytest.fixture(autouse=True)
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PLUGINS", {**DOUBLES, **registry.PLUGINS})
