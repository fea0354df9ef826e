"""Deployments: a model's stages on GPUs, as data, ours and those of other packages."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from engines.core.stage import ENTRY, Stage
from engines.devices.extensions import InLockstep, SmShare, StatedSteps, VisionSlots
from engines.devices.hardware import Gpu, load_gpu
from engines.devices.spread import Spread
from engines.models import Model, load_model, values, yaml_files
from workloads.errors import UserError, nearest
from workloads.files.yaml_file import read_yaml, shipped_yaml


@dataclass(frozen=True)
class Overheads:
    """Seconds outside the GPUs. `preprocess_s`: from the end of the user's turn to a request; `preprocess_text_s`: the
    same of a typed turn, None: as long. `hop_s`: between stages. `orchestrator_s`: per message through the
    orchestrator, one after the other. `fetch_s`: from the end of a talker's step until the request has the next token
    of text; until then it takes part in no step. 0: it always has it. `deliver_s`: from the orchestrator to the
    client's connection. `first_text_tokens`: tokens of text in the first chunk for the talker.
    `preprocess_s_per_reply`: more before the request for each reply in progress, whose tokens the same process
    sends."""

    preprocess_s: float
    hop_s: float
    orchestrator_s: float
    fetch_s: float = 0.0
    deliver_s: float = 0.0
    first_text_tokens: int = 1
    preprocess_text_s: float | None = None
    preprocess_s_per_reply: float = 0.0


@dataclass(frozen=True)
class CodecChunks:
    """Codec frames that the vocoder gets at a time, by the names of vLLM-Omni's connectors: of the first chunk, of the
    others, and of the frames before a chunk that are decoded again with it, as are as many of a cloned voice's
    recording. `stateful`: it keeps its state between chunks, and decodes nothing again but the recording, once."""

    initial_codec_chunk_frames: int = 4
    codec_chunk_frames: int = 25
    codec_left_context_frames: int = 25
    stateful: bool = False

    def context(self, sent: int, recorded: int) -> int:
        """Return the frames before a chunk that are decoded with it, behind `sent` frames of a reply with the voice of
        `recorded` frames."""
        most = self.codec_left_context_frames
        again = 0 if self.stateful else min(most, sent)
        return again if self.stateful and sent else again + min(most, recorded)


@dataclass(frozen=True)
class Deployment:
    """A model's stages on GPUs. `in_turn`, `waves`: the rules for times of steps (`Roofline`). `async_chunk`: text goes
    to the talker, and frames to the vocoder, while the rest is still being made; else each stage gets them whole.
    `talker_user_turns`: number of the user's last turns in the talker's prompt; 0: all that the thinker reads.
    `cached_voices`: recordings of cloned voices whose codes the talker keeps, the latest ones. `spread`: of step times;
    None: by their source. `release`: the server
    that it stands for, with its month; empty: none. `known_error`: the error of its predictions
    against public runs, in words; empty: unknown."""

    name: str
    title: str
    model: Model
    gpu: Gpu
    stages: dict[str, Stage]
    overheads: Overheads
    in_turn: bool = False
    waves: bool = False
    async_chunk: bool = True
    talker_user_turns: int = 0
    codec: CodecChunks = CodecChunks()
    cached_voices: int = 0
    spread: Spread | None = None
    release: str = ""
    known_error: str = ""

    @property
    def speaks(self) -> bool:
        """True if replies can be spoken."""
        return "talker" in self.stages

    @property
    def speech_only(self) -> bool:
        """True if it speaks a text that comes whole with the request, and writes none."""
        return self.entry == "talker"

    @property
    def clones(self) -> bool:
        """True if it speaks with the voice of a recording, which its talker encodes."""
        return self.speech_only and self.stages["talker"].decoder.encoder_s > 0

    @property
    def hears(self) -> bool:
        """True if a stage takes sound itself on a real device; else, and on a modelled one, sound is counted."""
        return any(stage.decoder.audio_encoder is not None for stage in self.stages.values())

    @property
    def entry(self) -> str:
        """The stage that requests come to first, named first in the file: its KV can be reused."""
        return next(iter(self.stages))

    def role(self, stage: str) -> str:
        """Return the role of a stage: `ENTRY` for the one that makes text under any name, else the stage's name."""
        return ENTRY if stage == self.entry and not self.speech_only else stage

    def stage(self, name: str) -> Stage:
        """Return the stage of this name. UserError without one."""
        if name not in self.stages:
            has = ", ".join(self.stages)
            raise UserError(f"deployment {self.name!r} has no stage {name!r}, only {has}; set another.")
        return self.stages[name]

    def divided(self, name: str, roles: dict[str, int]) -> "Deployment":
        """Return the deployment with these numbers of replicas by role at a stage, each on as many GPUs as a present
        one. If there are other stages, the replicas are the present ones. UserError if a GPU has other stages too, or
        if the number of replicas differs then."""
        stage, replicas = self.stage(name), sum(roles.values())
        elsewhere = {group for stage in self.stages.values() if stage.name != name for group in stage.gpus}
        why = ""
        if stage.roles:
            why = "has divided them itself"
        elif not elsewhere.isdisjoint(stage.gpus):
            why = "has other stages on their GPUs"
        elif elsewhere and len(stage.gpus) != replicas:
            why = f"has {len(stage.gpus)} of them, shared with other stages"
        if why:
            setting = " ".join(f"{role}={count}" for role, count in roles.items())
            raise UserError(
                f"{setting} divides the replicas of stage {name}, and deployment {self.name!r} {why}; leave it out, or "
                "set another deployment."
            )
        return replace(self, stages=self.stages | {name: stage.divided(roles, bool(elsewhere))})

    @property
    def gpu_groups(self) -> set[tuple[int, ...]]:
        """The GPUs that step together: those of a replica. Stages may share a group, never a part of one."""
        return {group for stage in self.stages.values() for group in stage.gpus}


ROLES = ("prefill", "decode")
"""Roles of the replicas of one stage: the first hands its KV to the second."""


def deployment_names() -> list[str]:
    return sorted(yaml_files("deployments"))


def is_file(name: str) -> bool:
    """Return True if a deployment is named by a file of the user's."""
    return name.endswith((".yaml", ".yml"))


def deployment_facts(name: str) -> dict[str, Any]:
    """Return the facts of a deployment's file, over those of the deployment that it is `like`, whose known error is not
    that of another deployment. KeyError without one."""
    facts = read_yaml(name) if is_file(name) else shipped_yaml(yaml_files("deployments")[name])
    like = facts.pop("like", None)
    return facts if like is None else _over(deployment_facts(like) | {"known_error": ""}, facts)


@cache
def load_deployment(name: str) -> Deployment:
    """Read a deployment's file: a known one by its name, or the user's by its path. UserError when there is none, or
    the user's is not as ours are.

    Rates that its GPUs were seen to reach (`reached`, by the names and in the units of `Gpu`) take precedence over the
    usual rates of such GPUs.
    """
    if is_file(name):
        try:
            return _read(name)
        except UserError:
            raise
        except KeyError as missing:
            raise UserError(
                f"deployment {name} lacks, or has no such, {missing}; write it like the deployments of `rehearse list "
                "deployments`."
            ) from None
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"deployment {name} is not one: {error}; write it as those shipped.") from None
    shipped = yaml_files("deployments")
    if name not in shipped:
        raise UserError(f"unknown deployment {name!r}.{nearest(name, shipped)} See `rehearse list deployments`.")
    return _read(name)


def _read(name: str) -> Deployment:
    """Read a deployment's file. ValueError if two replicas share a part of their GPUs; other errors as the file's
    content makes them."""
    facts = deployment_facts(name)
    model, release = load_model(facts["model"]), facts.get("release", "")
    deployment = Deployment(
        name=name,
        title=facts["title"] + (f"; {release}" if release else ""),
        model=model,
        gpu=replace(load_gpu(facts["gpu"]), **values(facts.get("reached", {}))),
        stages={stage: _stage(stage, model, limits) for stage, limits in facts["stages"].items()},
        overheads=Overheads(**values(facts["overheads"])),
        in_turn=facts.get("roofline") in ("operations", "waves"),
        waves=facts.get("roofline") == "waves",
        async_chunk=facts.get("async_chunk", True),
        codec=CodecChunks(**values(facts.get("codec", {}))),
        **values({name: facts[name] for name in ("talker_user_turns", "cached_voices") if name in facts}),
        spread=Spread(**values(facts["spread"])) if "spread" in facts else None,
        release=release,
        known_error=facts.get("known_error", ""),
    )
    used = sorted(gpu for group in deployment.gpu_groups for gpu in group)
    if used != sorted(set(used)):
        raise ValueError(f"deployment {name}: two replicas share a part of their GPUs")
    return deployment


def _over(base: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    changed = {
        key: _over(base[key], value) if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in facts.items()
    }
    return base | changed


def _stage(name: str, model: Model, limits: dict[str, Any]) -> Stage:
    """Return one stage, with its `gpus`, or `roles`: for each the number of `replicas`, the number of `gpus` per
    replica, and its differences from the stage."""
    limits = dict(limits)
    decoder = replace(model.stages[name], **values(limits.pop("host", {})))
    if "roles" not in limits:
        return Stage(name=name, decoder=decoder, **_fields(limits) | _placed(limits["gpus"]))
    common = _fields({key: value for key, value in limits.items() if key != "roles"})
    gpus: dict[str, list[list[int]]] = {}
    of_role: dict[str, dict[str, Any]] = {}
    used = 0
    for role, facts in limits["roles"].items():
        changes = dict(facts)
        replicas, size = changes.pop("replicas"), changes.pop("gpus")
        gpus[role] = [list(range(first, first + size)) for first in range(used, used + replicas * size, size)]
        used += replicas * size
        of_role[role] = _fields(changes)
    first = next(iter(of_role.values()))
    shared = {key: value for key, value in first.items() if key in ("max_num_seqs", "max_num_batched_tokens")}
    return Stage(name=name, decoder=decoder, **common, **shared, **_placed(gpus), of_role=of_role)


def _fields(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `Stage` in a file's entry, with or without their sources; facts of a mechanism become its
    extension."""
    sourced = {name: values(fact) for name, fact in facts.items() if isinstance(fact, dict) and "value" in fact}
    fields, extensions = facts | sourced, list[object]()
    if fields.pop("lockstep", False):
        extensions.append(InLockstep())
    if "step_time" in fields:
        extensions.append(StatedSteps(values(fields.pop("step_time")), fields.pop("step_scale", 1.0)))
    if (slots := fields.pop("vision_slots", None)) is not None:
        extensions.append(VisionSlots(slots))
    if (share := fields.pop("sm_share", None)) is not None:
        extensions.append(SmShare(share))
    return fields | ({"extensions": tuple(extensions)} if extensions else {})


def _placed(gpus: Any) -> dict[str, Any]:
    """Return a stage's `gpus`, one group a replica (a plain number is a group of one), and its `roles`: a mapping from
    role to replicas becomes the replicas of each."""
    by_role = gpus if isinstance(gpus, dict) else {None: gpus}
    groups: list[tuple[int, ...]] = []
    roles: dict[str, tuple[int, ...]] = {}
    for role, replicas in by_role.items():
        first = len(groups)
        groups += [(group,) if isinstance(group, int) else tuple(group) for group in replicas]
        if role is not None:
            roles[role] = tuple(range(first, len(groups)))
    if roles and list(roles) != list(ROLES):
        raise ValueError(f"roles are {' and '.join(ROLES)}, in this order, got {', '.join(roles)}")
    return {"gpus": tuple(groups), "roles": roles}
