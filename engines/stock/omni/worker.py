"""The worker classes that vLLM-Omni checks before it starts a stage (vllm_omni 0.30.0,
worker/omni_connector_validation.py 7-29). The modelled executor has no workers, so none is made."""

# pyright: reportMissingImports=false, reportGeneralTypeIssues=false
from vllm_omni.worker.omni_connector_model_runner_mixin import OmniConnectorModelRunnerMixin


class ModelledRunner(OmniConnectorModelRunnerMixin):
    """Never made."""


class ModelledWorker:
    """Never made."""

    model_runner_cls = ModelledRunner
