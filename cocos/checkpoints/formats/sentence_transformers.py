"""Folders of sentence-transformers: `modules.json` and a folder for each module."""

from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders, recorded
from cocos.checkpoints.encoders.sentence import ACTIVATIONS
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import huggingface
from cocos.checkpoints.state_dicts import weights
from cocos.checkpoints.tokenizer import tokenizer_files
from cocos.checkpoints.transformers import filled

LIBRARIES = ("transformers",)

# Modules by the last part of their type; nothing is imported by that name. The first ones had one for each model.
TRANSFORMERS = frozenset("Transformer BERT RoBERTa DistilBERT ALBERT CamemBERT XLMRoBERTa T5".split())
SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "bert roberta distilbert camembert albert xlm-roberta".split()
)
# Keys of the first pooling modules, in the order in which their vectors stand side by side.
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
CANDIDATE_PROMPTS = ("document", "passage", "corpus")  # names of the prompt of candidates, the first that is there
MAX_MODULES = 16


def recognises(file: File) -> bool:
    """A folder with a `modules.json`."""
    return file.kind == "folder" and "modules.json" in file


def read(file: File, data=None) -> Checkpoint:
    """Read a folder of sentence-transformers; the model is built when it encodes."""
    modules, about = _modules(file), _dictionary(file, "config_sentence_transformers.json")
    prompts = _prompts(file, about)
    encoder, contents = _stack(file, modules[0][1], modules[1:], prompts)
    training = recorded.read_folder(file.path)
    contents |= {
        "modules": ", ".join(name for name, _ in modules),
        "prompts": {side: prompt for side, prompt in prompts.items() if prompt} or "none",
        "scores": about.get("similarity_fn_name") or "cosine, by default",
        **recorded.describe_training(file.path),
    }
    unknown = "the folder records no loss; pairs are trained at temperature 0.05 by default: -p temperature=0.05"
    return Checkpoint.of(
        file,
        "sentence_transformers",
        contents,
        encoder=encoder,
        settings="",
        **training.fields(),
        notes=tuple(f"{file.path}: {note}" for note in training.notes or (unknown,)),
    )


def _dictionary(file: File, name: str) -> dict[str, Any]:
    """Read a dictionary; empty where there is no such file."""
    found = file.json(name) if name in file else {}
    if not isinstance(found, dict):
        raise InputError(f"{file.path / name} is no dictionary")
    return found


def _modules(file: File) -> list[tuple[str, str]]:
    """Names of the modules, and the folder of each with its slash."""
    found = file.json("modules.json")
    listed = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    if not listed or not 0 < len(found) <= MAX_MODULES:
        raise InputError(f"{file.path / 'modules.json'} is no list of 1 to {MAX_MODULES} modules")
    modules = []
    for row, module in enumerate(found):
        kind, path = str(module.get("type")), str(module.get("path") or "").strip("/")
        name, known = kind.rpartition(".")[2], TRANSFORMERS if row == 0 else {"Pooling", "Dense", "Normalize"}
        if not kind.startswith("sentence_transformers.") or name not in known:
            hint = "; name that folder itself" if name == "CLIPModel" else ""
            raise InputError(
                f"{file.path / 'modules.json'}: module {row} is {kind[:100]}, which is not built; known here are "
                f"{', '.join(sorted(known))}{hint}"
            )
        modules.append((name, f"{path}/" if path else ""))
    return modules


def _prompts(file: File, about: dict) -> dict[str, str]:
    """Text in front of every query and every candidate."""
    prompts = about.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(each, str | None) for each in prompts.values()):
        raise InputError(f"{file.path / 'config_sentence_transformers.json'}: prompts are no texts by name")
    otherwise = prompts.get(str(about.get("default_prompt_name"))) or ""
    candidate = next((name for name in CANDIDATE_PROMPTS if name in prompts), None)
    return {
        "query": (prompts["query"] or "") if "query" in prompts else otherwise,
        "candidate": (prompts[candidate] or "") if candidate else otherwise,
    }


def _stack(file: File, within: str, rest: list[tuple[str, str]], prompts: dict[str, str]):
    """Return a function that builds a transformer and the layers after it, and its description."""
    config, files = huggingface.text_model(file, within), tokenizer_files(file, within)
    settings = next((_dictionary(file, f"{within}{name}") for name in SETTINGS if f"{within}{name}" in file), {})
    # The output of another task is no vector for each token.
    task = settings.get("transformer_task", "feature-extraction")
    text = (settings.get("modality_config") or {}).get("text", {})
    output = text.get("method_output_name", "last_hidden_state") if isinstance(text, dict) else text
    if task != "feature-extraction" or output not in ("last_hidden_state", ["last_hidden_state"]):
        raise InputError(f"{file.path}: transformer for {task} with output {output}, expected feature-extraction")
    layers, more = [], {}
    for row, (name, inner) in enumerate(rest):
        layer, state = _layer(file, name, inner)
        layers.append(layer)
        more |= {f"layers.{row}.{key}": value for key, value in state.items()}
    state = weights(file, within)
    if state is None:
        raise InputError(f"{file.path / within} has no model.safetensors or pytorch_model.bin; copy the weights too")
    longest = huggingface.longest_text(config, files, settings.get("max_seq_length"))
    arguments = {
        "transformer": config,
        "layers": layers,
        "files": files,
        "longest": longest,
        "lower": bool(settings.get("do_lower_case")),
        "prompts": prompts,
        "padding": huggingface.padding(config),
    }
    pooling = next((layer["modes"] for layer in layers if layer["type"] == "Pooling"), [])
    numbers = sum(map(torch.numel, state.values()))
    contents = {
        "text tower": f"{config['model_type']}, tokens of {huggingface.token_width(config)} numbers, {numbers} numbers",
        "pooling": ", ".join(pooling) or "none",
        "longest text": f"{longest} tokens" if longest else "no limit",
    }

    def encoder():
        return filled(lambda: encoders.build("sentence", arguments), "transformer", config, state, more)

    return encoder, contents


def _layer(file: File, name: str, within: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a layer after the transformer, and its weights."""
    about = _dictionary(file, f"{within}config.json")
    if name == "Pooling":
        return {"type": name, "modes": _modes(about), "include_prompt": bool(about.get("include_prompt", True))}, {}
    if (reads := about.get("module_input_name") or "sentence_embedding") != "sentence_embedding":
        raise InputError(f"{file.path / within}: {name} reads {reads}, expected sentence_embedding")
    if name == "Normalize":
        return {"type": name}, {}
    activation = str(about.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in ACTIVATIONS:
        raise InputError(
            f"{file.path / within}: activation {about['activation_function']!r}, expected one of "
            f"{', '.join(ACTIVATIONS)}"
        )
    state = weights(file, within)
    if state is None or "linear.weight" not in state or state["linear.weight"].ndim != 2:
        raise InputError(f"{file.path / within} has no weights of a dense layer, linear.weight; copy them too")
    width, before = state["linear.weight"].shape
    layer = {"type": name, "in_features": before, "out_features": width, "bias": bool(about.get("bias", True))}
    layer |= {"activation": activation, "residual": bool(about.get("use_residual"))}
    return layer, {key: value.float() for key, value in state.items()}


def _modes(about: dict) -> list[str]:
    """Modes of a pooling module, as old and as new files write them."""
    if "pooling_mode" in about:
        found = about["pooling_mode"]
        return [str(mode) for mode in found] if isinstance(found, list) else [str(found)]
    return [mode for key, mode in POOLING_KEYS.items() if about.get(key)] or ["mean"]
