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
from cocos.checkpoints.files import File

MAX_DEPTH = 8  # nested containers that are read
SETTINGS_KEYS = ("hyper_parameters", "hparams", "args", "opt", "config", "cfg", "options", "settings", "params")
LOSS_KEYS = ("loss", "loss_name", "loss_type", "loss_fn", "loss_func", "criterion", "objective")
# Keys of the name of a loss within its block; the last two are Hydra's and Lightning's.
NAME_KEYS = ("name", "type", "loss", "kind", "class", "_target_", "class_path")
CRITERION = re.compile(r"(^|_)(loss|losses|criterion|criteria|objective)(_|\d|$)")
GENERIC = re.compile(r"\d+|(loss_?)?(kw)?args|params|parameters|init_args|config|cfg|options|opts|settings|hparams")
# Containers of the weights of a model, and the prefixes of wrappers around it.
CONTAINER = re.compile(r"\w*(state_dict|model_state)\w*|model|module|net|network|weights|_orig_mod|_forward_module")
# Learned numbers of these parts have the name of a loss parameter and another meaning.
OTHER_PART = re.compile(
    r"attn|attention|blocks?$|layers?$|quanti|gumbel|router|gate|codebook|vq|norm|distil|lora|adapter|scaler|loss_weight"
)
MODEL_COPY = re.compile(r"(^|_)(ema|teacher|momentum|target|shadow|averaged?|swa)(_|$)")
OPTIMIZER = re.compile(r"optim|lr_sched|scheduler|\w*scaler|amp|callbacks|loops")
# A setting next to one of these belongs to the generation of text.
GENERATION_KEYS = {"top_p", "top_k", "do_sample", "num_beams", "max_new_tokens", "repetition_penalty"}
BATCH_SIZE_KEYS = ("per_device_train_batch_size", "train_batch_size", "batch_size")
LOSS_PREFIX = re.compile(
    r"^(loss|softmax|contrast(ive)?|info_?nce|nce|nt_?xent|clip|itc|moco|simclr|supcon|logits?)_(?=t)"
)
# name -> parameter, and its stored form: value, logarithm or inverse
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
TEMPERATURES, SCALES, MOMENTA = (0.002, 2.0), (0.5, 500.0), (0.9, 1.0)
# Largest plausible margin by loss: of an angle in radians, of a cosine, and otherwise of a distance.
ANGLES, COSINES = ("arcface", "subcenter_arcface", "curricularface"), ("cosface", "center_contrastive", "circle")
MAX_DEGREES, MAX_MARGIN = 180.0, 10.0
# Losses for which a recorded number has the same meaning if the file does not name one.
WITH_TEMPERATURE, WITH_MARGIN = ("ntxent", "supcon"), ("triplet", "triplet_sh")
WITH_SCALE = ("arcface", "cosface", "normalized_softmax")


@dataclass(frozen=True)
class Candidate:
    """A number of a file that may be a parameter of the loss.

    Args:
        parameter: `temperature`, `scale`, `margin` or `bias`.
        value: as the loss takes it: no logarithm, no inverse.
        path: keys that lead to it, with dots.
        learned: whether it is a tensor, trained with the model.
        rank: smaller is better, of those that count.
        reason: why it is not used; empty if it is.
    """

    parameter: str
    value: float
    path: str
    learned: bool
    rank: tuple[bool, ...] = ()
    reason: str = ""

    @property
    def quantity(self) -> str:
        """The parameter, with a scale as the inverse of a temperature."""
        return "temperature" if self.parameter == "scale" else self.parameter

    @property
    def temperature(self) -> float:
        """The value, as a temperature if it is a scale."""
        return 1 / self.value if self.parameter == "scale" else self.value

    def __str__(self):
        return f"{self.parameter} {self.value:g} ({self.path}{', learned' if self.learned else ''})"


@dataclass(frozen=True)
class Recorded:
    """The settings that a checkpoint recorded.

    Args:
        loss: built-in loss that the file names, or None.
        parameters: loss -> parameters.
        candidates: every number that may be a parameter of the loss, with the reason if it is not used.
        notes: one for each choice between values that disagree.
        batch_size: of the training, or None.
        one_direction: whether only the queries search their candidates in the training.
        source: file or part with the record, for messages.
    """

    loss: str | None = None
    parameters: dict[str, dict[str, float]] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()
    batch_size: int | None = None
    one_direction: bool = False
    source: str = "the checkpoint"

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `Checkpoint` that these settings fill."""
        return {
            "recorded": self.parameters,
            "trained_with": self.loss,
            "recorder": self.source,
            "batch_size": self.batch_size,
            "one_direction": self.one_direction,
        }


def read(content: Mapping[str, Any]) -> Recorded:
    """Read the loss, its parameters and the batch size from the content of a file: nested dictionaries and tensors.

    Examples:
        >>> from cocos.checkpoints import recorded
        >>> content = {"state_dict": {"logit_scale": torch.tensor(100.0).log()}, "args": {"temperature": 0.07}}
        >>> recorded.read(content).parameters["ntxent"]
        {'temperature': 0.01}
    """
    leaves = list(walk(content))
    loss_names = {name for path, value, _ in leaves if (name := loss_name(path, value))}
    loss = loss_names.pop() if len(loss_names) == 1 else None
    readings = (read_candidate(path, value, siblings, loss) for path, value, siblings in leaves)
    candidates = [candidate for candidate in readings if candidate is not None]
    plausible = sorted((candidate for candidate in candidates if not candidate.reason), key=lambda entry: entry.rank)
    used = {candidate.quantity: candidate for candidate in reversed(plausible)}
    notes = []
    for index, candidate in enumerate(candidates):
        first = used.get(candidate.quantity, candidate)
        if candidate.reason or candidate is first:
            continue
        if math.isclose(candidate.temperature, first.temperature, rel_tol=1e-3):
            candidates[index] = replace(candidate, reason="a second record of the same value")
        else:
            candidates[index] = replace(candidate, reason=f"{first} has precedence")
            notes.append(f"{first} is used, not {candidate}")
    sizes = {path[-1]: value for path, value, _ in leaves if path[-1] in BATCH_SIZE_KEYS and setting_depth(path) == 1}
    size = next((sizes[key] for key in BATCH_SIZE_KEYS if type(sizes.get(key)) is int and sizes[key] > 1), None)
    # Further parameters of the named loss are read from its own block only.
    further = {}
    names = (losses.parameter_names(loss) or set()) if loss else set()
    names -= {candidate.path.rpartition(".")[2] for candidate in candidates}
    for path, value, _ in leaves:
        if path[-1] in names and isinstance(value, int | float | np.number) and criterion_depth(path) is not None:
            further[path[-1]] = float(value)
    parameters, loss = by_loss(used, further, loss, any(candidate.parameter == "scale" for candidate in candidates))
    return Recorded(loss, parameters, tuple(candidates), tuple(notes), size)


def read_file(file: File) -> Recorded:
    """Read the settings that a tensor file records, or its safetensors metadata; nothing of any other file."""
    if file.kind == "npz":
        content = {}
        with np.load(file.path, allow_pickle=False) as archive:
            for name in archive.files:
                if is_parameter(name):
                    content[name] = archive[name]
    else:
        content = file.content if isinstance(file.content, dict) else {}
    return read({**file.metadata, **content})


def walk(value: Any, path: tuple[str, ...] = (), siblings: frozenset[str] = frozenset()) -> Iterator[tuple]:
    """Yield (path, value, keys next to it) of single numbers and text, without the states of optimizers."""
    value = vars(value) if type(value).__name__ in {"Namespace", "SimpleNamespace"} else value
    if isinstance(value, Tensor | np.ndarray):
        if math.prod(value.shape) == 1 and value.ndim < 2:
            yield path, value, siblings
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value if len(path) < MAX_DEPTH else ()):
            if isinstance(item, Mapping | Tensor | np.ndarray | list | tuple):
                yield from walk(item, (*path, str(index)), siblings)
    elif isinstance(value, Mapping):
        keys = frozenset(map(str, value))
        for key, item in value.items() if len(path) < MAX_DEPTH else ():
            if path or not OPTIMIZER.match(str(key).lower()):
                yield from walk(item, (*path, *str(key).replace("-", "_").split(".")), keys)
    elif path and isinstance(value, int | float | str | np.number) and not isinstance(value, bool):
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
    if not isinstance(value, str) or len(value) > 100:
        return None
    key = path[-1].lower()
    is_setting = key in LOSS_KEYS and setting_depth(path) == 1
    in_criterion = key in (*NAME_KEYS, *LOSS_KEYS) and criterion_depth(path) is not None
    return built_in(value) if is_setting or in_criterion else None


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


def read_candidate(path: tuple[str, ...], value: Any, siblings: frozenset[str], loss: str | None) -> Candidate | None:
    """Return the number as a candidate for a parameter of the loss, or None if its name is another one."""
    learned = isinstance(value, Tensor | np.ndarray)
    key = path[-1].lower()
    name = LOSS_PREFIX.sub("", key)
    parameter, encoding = next((reading[1:] for reading in READINGS if reading[0].fullmatch(name)), (None, ""))
    stored = number(value)
    if parameter is None or stored is None:
        return None
    parameter, decoded = decode(parameter, encoding, stored, learned=learned)
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
    reason = "not next to a loss" if elsewhere else implausible(parameter, decoded, loss)
    if name in {"tau", "m"} and MOMENTA[0] <= decoded < MOMENTA[1] and not learned:
        reason = reason or "a momentum"
    if parameter == "margin" and loss in ANGLES and math.pi <= decoded <= MAX_DEGREES:
        decoded = math.radians(decoded)  # pytorch-metric-learning takes degrees
    copied = any(map(MODEL_COPY.search, parents))
    rank = (not learned, copied, not in_criterion, ambiguous)
    return Candidate(parameter, decoded, ".".join(path), learned, rank, reason)


def is_parameter(name: str) -> bool:
    """Whether an array of this name is read as a parameter of the loss."""
    return len(name) > 1 and any(names.fullmatch(name.lower()) for names, _, _ in READINGS)


def decode(parameter: str, encoding: str, value: float, *, learned: bool) -> tuple[str, float]:
    """Return the parameter and its value, from a logarithm or an inverse that the name or the range reveals."""
    if encoding == "log" and value <= math.log(SCALES[1]):
        return parameter, math.exp(value)
    if learned and parameter == "temperature" and value < 0:
        return parameter, math.exp(value)
    # Above log 500 the only plausible reading is a scale; from 2 to there it may be the logarithm of one.
    if learned and parameter == "temperature" and encoding == "value" and math.log(SCALES[1]) < value <= SCALES[1]:
        return "scale", value
    return parameter, value


def implausible(parameter: str, value: float, loss: str | None) -> str:
    """Return why a value cannot be the parameter of the loss; empty if it can."""
    if parameter == "margin":
        low, high = 0.0, MAX_DEGREES if loss in ANGLES else 1.0 if loss in COSINES else MAX_MARGIN
    else:
        low, high = {"temperature": TEMPERATURES, "scale": SCALES}.get(parameter, (-SCALES[1], SCALES[1]))
    return "" if low <= value <= high else f"expected {low:g} to {high:g}"


def by_loss(
    used: dict[str, Candidate], further: dict[str, float], loss: str | None, has_scale: bool
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Return the parameters by loss, and the loss that they imply if the file does not name one."""
    values = {candidate.parameter: candidate.value for candidate in used.values()}
    if loss is not None:
        native = losses.load(loss).parameters
        if "scale" in values and "temperature" in native:
            values["temperature"] = float(f"{1 / values.pop('scale'):.12g}")
        values = further | {
            name: value for name, value in values.items() if name in (losses.parameter_names(loss) or ())
        }
        try:
            losses.load(loss, values)
        except InputError:  # a value that the loss refuses is not a default
            values = {}
        return ({loss: values} if values else {}), loss
    parameters: dict[str, dict[str, float]] = {}
    if "scale" in values and "margin" in values:  # the margin of an angle
        parameters |= {name: {"scale": values["scale"]} for name in WITH_SCALE}
    elif "temperature" in used:
        temperature = used["temperature"].temperature
        parameters |= {name: {"temperature": temperature} for name in WITH_TEMPERATURE}
    if "margin" in values and not has_scale:
        parameters |= {name: {"margin": values["margin"]} for name in WITH_MARGIN}
    bias = used.get("bias")
    if "scale" in values and bias is not None and bias.learned and not bias.path.endswith("similarity_bias"):
        return parameters | {"siglip": {"scale": values["scale"], "bias": bias.value}}, "siglip"
    return parameters, None
