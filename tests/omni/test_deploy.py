"""The deployment that vLLM-Omni reads: its own file, with the numbers of ours."""

import json
from pathlib import Path

from vllm_omni.config.stage_config import resolve_deploy_yaml  # pyright: ignore[reportMissingImports]  # .venv-omni

from engines.stock.omni.omni_params import OmniParams
from engines.stock.omni.pipeline import CONNECTOR, deploy


def test_chunks_are_as_long_as_the_deployment_says(tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    for name, frames in (("qwen3_omni_2gpu", (4, 25, 25)), ("qwen3_omni_2gpu_april", (25, 25, 25))):
        file.write_text(json.dumps(deploy(OmniParams.model_validate({"deployment": name}))))
        connector = resolve_deploy_yaml(file)["connectors"][CONNECTOR]
        assert connector["name"] == "SharedMemoryConnector"
        assert tuple(connector["extra"].values()) == frames


def test_settings_of_the_connector_that_ours_does_not_name_are_kept(tmp_path: Path) -> None:
    """`codec_streaming` is in vLLM-Omni's own file for Qwen3-TTS alone."""
    ours = deploy(OmniParams.model_validate({"deployment": "qwen3_tts_2gpu"}))
    assert "codec_streaming" not in ours["connectors"][CONNECTOR]["extra"]
    file = tmp_path / "deploy.yaml"
    file.write_text(json.dumps(ours))
    merged = resolve_deploy_yaml(file)["connectors"][CONNECTOR]["extra"]
    assert merged["codec_streaming"] is True
    assert merged["initial_codec_chunk_frames"] == 1  # as our deployment says
