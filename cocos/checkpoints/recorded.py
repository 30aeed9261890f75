"""Recorded settings: the loss of a training and its parameters, as the file of any checkpoint records them.

A learned parameter has precedence over a setting, and a setting counts only next to a loss. An implausible value is
listed by `cocos inspect` and never becomes a default.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.checkpoints.files import File, walk

SETTINGS_KEYS = ("hyper_parameters", "hparams", "args", "opt", "config", "cfg", "options", "settings", "params")
LOSS_KEYS = ("loss", "loss_name", "loss_type", "loss_fn", "loss_func", "criterion", "objective")
# Keys of the name of a loss within its block; the last two are Hydra's and Lightning's.
NAME_KEYS = (*LOSS_KEYS, "name", "type", "kind", "class", "_target_", "class_path")
CRITERION = re.compile(r"(^|_)(loss|losses|criterion|criteria|objective)(_|\d|$)")
GENERIC = re.compile(r"\d+|(loss_?)?(kw)?args|params|parameters|init_args|config|cfg|options|opts|settings|hparams")
# Containers of the weights of a model, and the prefixes of wrappers around it.
CONTAINER = re.compile(r"\w*(state_dict|model_state)\w*|model|module|net|network|weights|_orig_mod|_forward_module")
# Learned numbers of these parts have the name of a loss parameter and another meaning.
OTHER_PART = re.compile(
    r"attn|attention|blocks?$|layers?$|quanti|gumbel|router|gate|codebook|vq|norm|distil|lora|adapter|scaler|loss_weight"
)
MODEL_COPY = re.compile(r"(^|_)(ema|teacher|momentum|target|shadow|averaged?|swa)(_|$)")
# A setting next to one of these belongs to the generation of text.
GENERATION_KEYS = {"top_p", "top_k", "do_sample", "num_beams", "max_new_tokens", "repetition_penalty"}
BATCH_SIZE_KEYS = ("per_device_train_batch_size", "train_batch_size", "batch_size")
LOSS_PREFIX = re.compile(
    r"^(loss|softmax|contrast(ive)?|info_?nce|nce|nt_?xent|clip|itc|moco|simclr|supcon|logits?)_(?=t)"
)
# name -> parameter, and its stored form: value or logarithm
READINGS = (
    (re.compile(r"(log_)?logit_scale(_[a-z]|_audio|_text|_image|_param)?|log_scale|t_prime"), "scale", "log"),
    (re.compile(r"log_(inv(erse)?_)(temperature|temp|tau|t)"), "scale", "log"),
    (re.compile(r"log_(temperature|temp|tau|t)"), "temperature", "log"),
    (re.compile(r"inv(erse)?_(temperature|temp|tau|t)|similarity_weight"), "scale", "value"),
    (re.compile(r"temperature|temp|tau|t"), "temperature", "value"),
    (re.compile(r"scale|s"), "scale", "value"),
    (re.compile(r"margin|m"), "margin", "value"),
    (re.compile(r"logit_bias|similarity_bias|bias"), "bias", "value"),
)
# These names have other meanings too (momentum, augmentation, layers): they count only next to a loss that has them.
AMBIGUOUS = {"tau", "t", "scale", "s", "m", "bias", "log_scale"}
# Plausible values. The range of margins allows for distances.
RANGES = {"temperature": (0.002, 2.0), "scale": (0.5, 500.0), "margin": (0.0, 10.0), "bias": (-500.0, 500.0)}
MAX_LOG_SCALE, MOMENTA = math.log(500), (0.9, 1.0)
# Losses whose margin is an angle in radians, which pytorch-metric-learning has in degrees, or a cosine.
ANGLES, COSINES = ("arcface", "subcenter_arcface", "curricularface"), ("cosface", "center_contrastive", "circle")
MAX_DEGREES = 180.0
# Losses for which a recorded number has the same meaning if the file does not name one.
WITH_TEMPERATURE, WITH_MARGIN = ("ntxent", "supcon"), ("triplet", "triplet_sh")
WITH_SCALE = ("arcface", "cosface", "normalized_softmax")


@dataclass(frozen=True)
class Candidate:
    """A number of a file that may be a parameter of the loss."""

    parameter: str  # `temperature`, `scale`, `margin` or `bias`
    value: float  # as the loss takes it: no logarithm, no inverse
    source: str  # keys that lead to it, with dots
    learned: bool  # whether it is a tensor, trained with the model
    reason: str  # why it is not used; empty if it is

    @property
    def quantity(self) -> tuple[str, float]:
        """The parameter and its value, with a scale as the inverse of a temperature."""
        return ("temperature", 1 / self.value) if self.parameter == "scale" else (self.parameter, self.value)

    def __str__(self):
        return f"{self.parameter} {self.value:g} ({self.source}{', learned' if self.learned else ''})"


@dataclass(frozen=True)
class Recorded:
    """The settings that a checkpoint recorded."""

    loss: str | None = None  # built-in loss that the file names, or None
    parameters: Mapping[str, dict[str, float]] = field(default_factory=dict)  # loss -> parameters
    # Every number that may be a parameter of the loss, with the reason if it is not used.
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()  # one for each choice between values that disagree
    batch_size: int | None = None  # of the training, or None
    one_direction: bool = False  # whether only the queries search their candidates in the training
    source: str = "the checkpoint"  # file or part with the record, for messages


def read(content: Mapping[str, Any]) -> Recorded:
    """Read the loss, its parameters and the batch size from the content of a file: nested dictionaries and tensors.

    Examples:
        >>> from cocos.checkpoints import recorded
        >>> content = {"state_dict": {"logit_scale": torch.tensor(100.0).log()}, "args": {"temperature": 0.07}}
        >>> recorded.read(content).parameters["ntxent"]
        {'temperature': 0.01}
    """
    leaves = list(read_leaves(content))
    loss_names = {name for path, value, _ in leaves if (name := loss_name(path, value))}
    loss = loss_names.pop() if len(loss_names) == 1 else None
    ranked = [reading for leaf in leaves if (reading := read_candidate(*leaf, loss=loss)) is not None]
    candidates = [candidate for _, candidate in ranked]
    plausible = [candidate for _, candidate in sorted(ranked, key=lambda entry: entry[0]) if not candidate.reason]
    used = {candidate.quantity[0]: candidate for candidate in reversed(plausible)}
    notes = []
    for index, candidate in enumerate(candidates):
        first = used.get(candidate.quantity[0], candidate)
        if not candidate.reason and candidate is not first:
            candidates[index] = replace(candidate, reason=f"{first} has precedence")
            if not math.isclose(candidate.quantity[1], first.quantity[1], rel_tol=1e-3):
                notes.append(f"{first} is used, not {candidate}")
    sizes = {path[-1]: value for path, value, _ in leaves if setting_depth(path) == 1 and type(value) is int}
    batch_size = next((sizes[key] for key in BATCH_SIZE_KEYS if sizes.get(key, 0) > 1), None)
    # Further parameters of the named loss are read from its own block only.
    names = set(losses.parameter_names(loss) or ()) if loss else set()
    names -= {candidate.source.rpartition(".")[2] for candidate in candidates}
    further = {
        path[-1]: float(value)
        for path, value, _ in leaves
        if path[-1] in names and isinstance(value, int | float | np.number) and criterion_depth(path) is not None
    }
    if loss:
        parameters = of_loss(loss, used, further)
    else:
        parameters = of_any_loss(used, any(candidate.parameter == "scale" for candidate in candidates))
        loss = "siglip" if "siglip" in parameters else None
    return Recorded(loss, parameters, tuple(candidates), tuple(notes), batch_size)


def read_file(file: File) -> Recorded:
    """Read the settings that a file of tensors or arrays records, or its safetensors metadata."""
    content = file.content if isinstance(file.content, dict) else {}
    if file.kind == "npz":
        with np.load(file.path, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files if is_parameter(name)}
    return read({**file.metadata, **content})


def read_leaves(content: Mapping[str, Any]) -> Iterator[tuple]:
    """Yield (path, value, keys next to it) of single numbers and text; keys are split at dots."""
    for keys, value, siblings in walk(content):
        path = tuple(part for key in keys for part in key.replace("-", "_").split("."))
        is_tensor = isinstance(value, Tensor | np.ndarray)
        if (is_tensor and math.prod(value.shape) == 1 and value.ndim < 2) or (
            isinstance(value, int | float | str | np.number) and not isinstance(value, bool)
        ):
            yield path, value, siblings


def setting_depth(path: tuple[str, ...]) -> int:
    """Return the number of keys, not counting settings containers such as `hyper_parameters`."""
    return sum(key not in SETTINGS_KEYS for key in path)


def criterion_depth(path: tuple[str, ...]) -> int | None:
    """Return the position of the last key of a criterion, or None if the number belongs to something else."""
    for position in range(len(path) - 2, -1, -1):
        key = path[position].lower()
        if CRITERION.search(key) and not OTHER_PART.search(key):
            return position
        if not GENERIC.fullmatch(key):
            return position if not CONTAINER.fullmatch(key) and built_in(key) else None
    return None


def loss_name(path: tuple[str, ...], value: Any) -> str | None:
    """Return the built-in loss of a text next to other settings or in the block of a criterion, or None."""
    key = path[-1].lower()
    is_setting = key in LOSS_KEYS and setting_depth(path) == 1
    in_criterion = key in NAME_KEYS and criterion_depth(path) is not None
    return built_in(value) if isinstance(value, str) and (is_setting or in_criterion) else None


@functools.cache
def built_in(name: str) -> str | None:
    """Return the built-in loss of this name, or None; a file cannot name code."""
    try:
        loss = losses.find_file(re.split(r"[.:]", name.strip())[-1])
    except InputError:
        return None
    return loss if loss in losses.names() else None


def number(value: Any) -> float | None:
    """Return a finite number from a number, text or tensor, or None."""
    try:
        result = float(value.reshape(-1)[0] if isinstance(value, Tensor | np.ndarray) else value)
    except (TypeError, ValueError):
        return None
    return result if math.isfinite(result) else None


def read_candidate(
    path: tuple[str, ...], value: Any, siblings: frozenset[str], loss: str | None
) -> tuple[tuple[bool, ...], Candidate] | None:
    """Return the number as a candidate for a parameter of the loss, with its rank; None if it has another name."""
    learned = isinstance(value, Tensor | np.ndarray)
    key = path[-1].lower()
    name = LOSS_PREFIX.sub("", key)
    parameter, form = next((reading[1:] for reading in READINGS if reading[0].fullmatch(name)), (None, ""))
    decoded = number(value)
    if parameter is None or decoded is None:
        return None
    is_temperature = learned and parameter == "temperature"
    if (form == "log" and decoded <= MAX_LOG_SCALE) or (is_temperature and decoded < 0):
        decoded = math.exp(decoded)
    elif is_temperature and form == "value" and MAX_LOG_SCALE < decoded <= RANGES["scale"][1]:
        parameter = "scale"  # between 2 and log 500 it may be the logarithm of a scale
    decoded = float(f"{decoded:.6g}")  # float32 stores 0.07 as 0.0700000003
    parents = [part.lower() for part in path[:-1]]
    in_criterion = criterion_depth(path) is not None
    ambiguous = name in AMBIGUOUS and name == key
    if learned:
        elsewhere = any(OTHER_PART.search(part) for part in parents if not CRITERION.search(part))
        elsewhere |= ambiguous and not in_criterion and not all(map(CONTAINER.fullmatch, parents))
        elsewhere |= key == "bias" and not in_criterion
    else:
        next_to_loss = not ambiguous or (loss is not None and parameter in (losses.parameter_names(loss) or ()))
        elsewhere = not in_criterion and (setting_depth(path) > 1 or not next_to_loss or siblings & GENERATION_KEYS)
    low, high = RANGES[parameter]
    if parameter == "margin" and loss in (*ANGLES, *COSINES):
        high = MAX_DEGREES if loss in ANGLES else 1.0
    reason = "not next to a loss" if elsewhere else "" if low <= decoded <= high else f"expected {low:g} to {high:g}"
    if name in {"tau", "m"} and MOMENTA[0] <= decoded < MOMENTA[1] and not learned:
        reason = reason or "a momentum"
    if parameter == "margin" and loss in ANGLES and math.pi <= decoded <= MAX_DEGREES:
        decoded = math.radians(decoded)
    rank = (not learned, any(map(MODEL_COPY.search, parents)), not in_criterion, ambiguous)
    return rank, Candidate(parameter, decoded, ".".join(path), learned, reason)


def is_parameter(name: str) -> bool:
    """Return whether an array of this name is read as a parameter of the loss."""
    return len(name) > 1 and any(names.fullmatch(name.lower()) for names, _, _ in READINGS)


def of_loss(loss: str, used: dict[str, Candidate], further: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return the parameters of the loss that a file names."""
    values = {candidate.parameter: candidate.value for candidate in used.values()}
    if "scale" in values and "temperature" in losses.load(loss).parameters:
        values["temperature"] = float(f"{1 / values.pop('scale'):.12g}")
    accepted = losses.parameter_names(loss) or ()
    values = further | {name: value for name, value in values.items() if name in accepted}
    try:
        losses.load(loss, values)
    except InputError:  # a value that the loss refuses is not a default
        values = {}
    return {loss: values} if values else {}


def of_any_loss(used: dict[str, Candidate], has_scale: bool) -> dict[str, dict[str, float]]:
    """Return the parameters by loss if a file does not name one."""
    values = {candidate.parameter: candidate.value for candidate in used.values()}
    parameters: dict[str, dict[str, float]] = {}
    if "scale" in values and "margin" in values:  # the margin of an angle
        parameters |= {name: {"scale": values["scale"]} for name in WITH_SCALE}
    elif "temperature" in used:
        parameters |= {name: {"temperature": used["temperature"].quantity[1]} for name in WITH_TEMPERATURE}
    if "margin" in values and not has_scale:
        parameters |= {name: {"margin": values["margin"]} for name in WITH_MARGIN}
    bias = used.get("bias")
    if "scale" in values and bias is not None and bias.learned and not bias.source.endswith("similarity_bias"):
        parameters["siglip"] = {"scale": values["scale"], "bias": bias.value}
    return parameters
