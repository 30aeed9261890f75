"""Models of Hugging Face transformers, built from a configuration that is read as data, without the network."""

import importlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError
from cocos.checkpoints.encoders import freeze

# Types of models that encode texts, as `model_type` names them. No other is built: some of the library's own load
# further models over the network, or hand over to other libraries.
TEXT_MODELS = frozenset(
    "albert bert camembert deberta deberta-v2 distilbert electra ernie eurobert gemma gemma2 gemma3_text llama mistral "
    "modernbert mpnet mt5 qwen2 qwen3 roberta t5 umt5 xlm-roberta xlm-roberta-xl".split()
)
PAIRED_MODELS = frozenset({"clip", "siglip"})  # an image tower and a text tower
ENCODER_OF_TWO = frozenset({"t5", "mt5", "umt5"})  # the encoder alone is built
# Keys of a configuration that say nothing about the numbers of a frozen encoder, or that choose how it is run.
IGNORED = re.compile(
    r"_.*|architectures|(torch_)?dtype|.*implementation|num_labels|id2label|label2id|problem_type|model_type|use_cache|"
    r"task_specific_params|output_\w+|return_dict|use_return_dict|torchscript|gradient_checkpointing|use_kernels|"
    r"transformers_version|tokenizer_class|finetuning_task|classifier_dropout|adapters|prefix|use_bfloat16"
)
REFUSED = {
    "auto_map": "it names code of its own, which is not run",
    "quantization_config": "its weights are quantised: save it in float32, model.dequantize().save_pretrained(FOLDER)",
}
LOOPS = re.compile(r"layer|block|depth|stage|expert|group")  # numbers of parts that a model is built of
ALWAYS_FEW = 64  # parts that any model may have, however few weights there are
ALWAYS_SMALL = 2**20  # sizes that any model may have, such as positions that it computes
MAX_BUFFERS = 2**26  # numbers that a model may compute on its own, such as rotary frequencies
# Names in a file that a frozen encoder does not read: poolers, heads, and numbers that are computed.
HARMLESS = re.compile(
    r"(.*\.)?(pooler|cls|lm_head|classifier|score|qa_outputs|predictions|decoder|vocab_\w+|lm_predictions|"
    r"generator_\w+|discriminator_\w+|mask_predictions)\..*|(.*\.)?(position_ids|token_type_ids|inv_freq|masked_bias)|"
    r"lm_head\.\w+"
)
RANDOM = re.compile(r"(normal|uniform|trunc_normal|(kaiming|xavier)_(normal|uniform))_")


def installed(name: str) -> ModuleType:
    """Import a library that models are built with, `transformers` or `tokenizers`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
        raise InputError(
            f"encoders of texts need {name}, which {reason}: pip install 'cocos-metric[text]', or pip install {name}"
        ) from None
    except Exception as error:
        raise InputError(unfit(name, error)) from None


def unfit(name: str, error: Exception) -> str:
    """Make the sentence for a library that fails while it is imported: the installation is wrong, and no model or file.

    A compiled library beside it, such as torchvision, raises errors of any kind where it does not fit torch.
    """
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return (
        f"{name} is installed and cannot be imported ({reason}): the installed libraries do not fit together; install "
        f"versions of {name}, torch and torchvision that do"
    )


def imported(name: Any) -> None:
    """Import what a type of model is made of: nothing may be imported while tensors are made on the meta device."""
    library = installed("transformers")
    try:
        _ = library.AutoModel, library.AutoConfig  # each is imported when it is named
    except Exception as error:
        raise InputError(unfit("transformers", error)) from None
    if name in TEXT_MODELS | PAIRED_MODELS:
        place = name.replace("-", "_").removesuffix("_text")
        try:
            importlib.import_module(f"transformers.models.{place}.modeling_{place}")
        except ImportError as error:
            raise InputError(f"transformers {library.__version__} has no model {name} ({error})") from None
        except Exception as error:
            raise InputError(unfit("transformers", error)) from None


class _Unfilled(TorchFunctionMode):
    """Draw no random number: a file fills all weights. Zeros end the loops of those that draw again."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if RANDOM.fullmatch(getattr(func, "__name__", "")):
            with torch.no_grad():
                return (args[0] if args else kwargs["tensor"]).zero_()
        return func(*args, **(kwargs or {}))


def build_model(config: Mapping[str, Any], types: frozenset[str] = TEXT_MODELS) -> nn.Module:
    """Build a model of one of some types from the plain data of a `config.json`, without weights."""
    for key, reason in REFUSED.items():
        if config.get(key):
            raise InputError(f"config.json has {key} {str(config[key])[:80]}: {reason}")
    if (name := config.get("model_type")) not in types:
        raise InputError(f"config.json has model_type {name!r}, expected one of {', '.join(sorted(types))}")
    library = installed("transformers")
    try:
        settings = library.AutoConfig.for_model(name, **_settings(config))
        kind = library.AutoModelForTextEncoding if name in ENCODER_OF_TWO else library.AutoModel
        with _Unfilled():
            model = kind.from_config(settings, trust_remote_code=False)
    except Exception as error:  # the library checks configurations with errors of its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"transformers {library.__version__} builds no {name} from config.json ({reason})") from None
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # what is pooled from tokens is said by the folder, and most files have no weights for it
    return model


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what a model is built from, in the configurations of towers as well."""
    kept = {key: value for key, value in config.items() if not IGNORED.fullmatch(key)}
    towers = {key: value for key, value in kept.items() if key in {"text_config", "vision_config"}}
    return kept | {key: _settings(value) for key, value in towers.items() if isinstance(value, dict)}


def _check_sizes(config: Mapping[str, Any], tensors: int, numbers: int) -> None:
    """Refuse sizes that the tensors of a file, and their numbers together, do not explain, before a model is built."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_sizes(value, tensors, numbers)
        few = bool(LOOPS.search(key)) and "window" not in key
        most = max(tensors, ALWAYS_FEW) if few else max(numbers, ALWAYS_SMALL)
        if isinstance(value, list) and len(value) > max(tensors, ALWAYS_FEW):
            raise InputError(f"config.json: {key} has {len(value)} values, and the file has {tensors} tensors")
        for size in value if isinstance(value, list) else [value]:
            if isinstance(size, int | float) and abs(size) > most and not IGNORED.fullmatch(key):
                raise InputError(
                    f"config.json: {key} {str(size)[:40]}, expected at most {most}: the file has {tensors} tensors of "
                    f"{numbers} numbers"
                )


def adapted(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights of a file the names of a model, in float32, without those that a frozen encoder does not read.

    A file that was saved with a head has the encoder under a prefix; weights that two names share are saved once.
    """
    for first, name in (("gamma", "weight"), ("beta", "bias")):  # of the first BERT files, converted from TensorFlow
        state = {re.sub(rf"LayerNorm\.{first}$", f"LayerNorm.{name}", key): value for key, value in state.items()}
    own = set(model.state_dict())
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    inner = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    state = inner if len(own & inner.keys()) > len(own & state.keys()) else state
    found = {key: value for key, value in state.items() if key in own or not HARMLESS.fullmatch(key)}
    shared: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        shared.setdefault(id(weight), []).append(name)
    for names in shared.values():
        there = next((name for name in names if name in found), None)
        found |= {name: found[there] for name in names if there is not None and name not in found}
    return {key: value.float() if value.is_floating_point() else value for key, value in found.items()}


def filled(
    build: Callable[[], nn.Module],
    inner: str,
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    more: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Build an encoder around a model of transformers, with the weights of a file, and freeze it.

    Names and shapes are compared on the meta device, before anything is allocated for the sizes of a file. The model is
    the attribute `inner` of the encoder; `more` are weights of the rest, by their names in the encoder.
    """
    _check_sizes(config, len(weights), sum(map(torch.numel, weights.values())))
    imported(config.get("model_type"))
    with torch.device("meta"):
        encoder = build()
    if (numbers := sum(map(torch.numel, encoder.buffers()))) > MAX_BUFFERS:
        raise InputError(f"config.json asks for {numbers} numbers that no file holds, expected at most {MAX_BUFFERS}")
    found = adapted(getattr(encoder, inner), weights)
    state = {f"{inner}.{key}": value for key, value in found.items()} | dict(more or {})
    encoder = freeze(encoder, state)
    computed = any(buffer.is_meta for buffer in encoder.buffers())
    return freeze(build(), state) if computed else encoder
