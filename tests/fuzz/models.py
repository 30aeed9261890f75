"""One valid folder, or file with those beside it, of each family of models; small, as `fuzz.seeds` are.

Contents are plain data (for JSON), tensors by name (for safetensors), what is saved (for torch files), or bytes.
"""

import functools
from collections.abc import Callable

import torch

from cocos.checkpoints import encoders
from fuzz import sets

__all__ = ["MODELS"]

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "##s", "a", "dog", "."]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
PIECES = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "th", "the</w>"]
BERT = {
    "model_type": "bert",
    "vocab_size": len(WORDS),
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 4,
    "max_position_embeddings": 12,
    "pad_token_id": 0,
}
TOWER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
CARD = '* Loss: [<code>MultipleNegativesRankingLoss</code>](x) with:\n```json\n{"scale": 25.0}\n```'
RESNET = {
    "stem": 2,
    "num_blocks": [1, 1, 1, 1],
    "widths": [2, 2, 2, 2],
    "outputs": [2, 2, 2, 2],
    "bottleneck": False,
}
VGG = {"parts": [[2], [2], [2], [2], [2]], "batch_norm": False, "hidden": 3, "classes": 4}
MOBILE = {"widths": [2] * 19, "inner": [2] + [4] * 16, "nested": False}
FACES = {"num_blocks": [1, 1, 1, 1], "widths": [2, 2, 2, 2, 2], "dimensions": 4, "side": 32, "places": 2}
# Encoders of the shelf, narrow: names and arguments.
NETWORKS = {
    "resnet": ("image_network", {"trunk": "resnet", "sizes": RESNET | {"classes": 4}}),
    "bare resnet": ("image_network", {"trunk": "resnet", "sizes": RESNET}),
    "vgg": ("image_network", {"trunk": "vgg", "sizes": VGG}),
    "mobilenet": ("image_network", {"trunk": "mobilenet_v2", "sizes": MOBILE}),
    "iresnet": ("iresnet", FACES),
    "warpnet": ("warpnet", {"dimensions": 4, **RESNET, "classes": 3}),
    "tfeat": ("tfeat", {"channels": (2, 2), "dimensions": 4}),
    "hard tfeat": ("tfeat", {"channels": (2, 2), "dimensions": 4, "hard": True}),
    "ge2e": ("ge2e", {"channels": 3, "hidden": 3, "num_layers": 2, "dimensions": 4}),
}


def _drawn(shapes: dict[str, tuple]) -> dict[str, torch.Tensor]:
    return {name: torch.rand(shape) for name, shape in shapes.items()}


@functools.cache
def _shapes(name: str) -> dict[str, tuple]:
    kind, arguments = NETWORKS[name]
    with torch.random.fork_rng():
        state = encoders.build(kind, arguments).state_dict()
    return {key.removeprefix("trunk."): tuple(value.shape) for key, value in state.items()}


def _network(name: str, prefix: str = "") -> dict[str, torch.Tensor]:
    """Weights of a network of the shelf, under the names that its files have."""
    return {
        prefix + key: torch.tensor(3) if key.endswith("num_batches_tracked") else torch.rand(shape)
        for key, shape in _shapes(name).items()
    }


def _bert() -> dict[str, torch.Tensor]:
    width, inner = BERT["hidden_size"], BERT["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), width),
        "embeddings.position_embeddings.weight": (BERT["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.gamma": (width,),
        "embeddings.LayerNorm.beta": (width,),
    }
    for part, shape in {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "attention.output.LayerNorm": (width,),
        "intermediate.dense": (inner, width),
        "output.dense": (width, inner),
        "output.LayerNorm": (width,),
    }.items():
        shapes |= {f"encoder.layer.0.{part}.weight": shape, f"encoder.layer.0.{part}.bias": shape[:1]}
    return _drawn(shapes)


def _tokenizer(random, within: str = "") -> dict:
    """A tokenizer in one of the files that hold one."""
    about = {f"{within}tokenizer_config.json": {"do_lower_case": True, "model_max_length": 10}}
    if random.random() < 0.5:
        return about | {f"{within}vocab.txt": "\n".join(WORDS).encode()}
    model = {"type": "WordLevel", "vocab": {word: row for row, word in enumerate(WORDS)}, "unk_token": "[UNK]"}
    parts = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": []}
    empty = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    return about | {f"{within}tokenizer.json": {"version": "1.0", **empty, **parts, "model": model}}


def _weights(random, state: dict, within: str = "") -> dict:
    return {f"{within}{random.choice(['model.safetensors', 'pytorch_model.bin'])}": state}


def _sentence(random) -> tuple[dict, str, dict]:
    """A folder of sentence-transformers: a tiny BERT and layers after it, or a static table."""
    kind, within = "sentence_transformers.models.{}", random.choice(["", "0_Transformer/"])
    modules = [(within.strip("/"), "Transformer"), ("1_Pooling", "Pooling")]
    files = {
        f"{within}config.json": BERT,
        f"{within}sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": 4, "pooling_mode_mean_tokens": True},
        **_weights(random, _bert(), within),
        **_tokenizer(random, within),
    }
    if random.random() < 0.5:
        dense = {"in_features": 4, "out_features": 3, "bias": True, "activation_function": "torch.nn.Tanh"}
        modules += [("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
        files |= {"2_Dense/config.json": dense}
        files |= _weights(random, _drawn({"linear.weight": (3, 4), "linear.bias": (3,)}), "2_Dense/")
    if random.random() < 0.2:
        modules = [("", "StaticEmbedding")]
        files = {"model.safetensors": {"embedding.weight": torch.rand(len(WORDS), 4)}, **_table_tokenizer(random)}
    files["modules.json"] = [{"idx": i, "path": p, "type": kind.format(n)} for i, (p, n) in enumerate(modules)]
    if random.random() < 0.5:
        files["config_sentence_transformers.json"] = {"prompts": {"query": "the "}, "similarity_fn_name": "dot"}
        files["README.md"] = CARD.encode()
    return files, "", sets.pairs(random)


def _table_tokenizer(random) -> dict:
    found = _tokenizer(random)
    while "tokenizer.json" not in found:
        found = _tokenizer(random)
    return found


def _hugging_face(random) -> tuple[dict, str, dict]:
    files = {"config.json": BERT, **_weights(random, _bert()), **_tokenizer(random)}
    if random.random() < 0.3:
        state = files.pop("model.safetensors", None) or files.pop("pytorch_model.bin")
        parts = {"model-00001-of-00002.safetensors": dict(list(state.items())[::2])}
        parts["model-00002-of-00002.safetensors"] = dict(list(state.items())[1::2])
        where = {key: part for part, held in parts.items() for key in held}
        files |= parts | {"model.safetensors.index.json": {"metadata": {"total_size": 1}, "weight_map": where}}
    return files, "", sets.pairs(random)


@functools.cache
def _clip_shapes(kind: str) -> tuple[dict, dict]:
    import transformers

    text = TOWER | {"vocab_size": len(PIECES), "max_position_embeddings": 12}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = TOWER | {"image_size": 16, "patch_size": 8}
    if kind == "siglip":
        text["projection_size"] = 8
        config = transformers.SiglipConfig(text_config=text, vision_config=vision)
    else:
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=4)
    with torch.random.fork_rng():
        model = (transformers.CLIPModel if kind == "clip" else transformers.SiglipModel)(config)
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    return shapes, {"model_type": kind, "text_config": text, "vision_config": vision, "projection_dim": 4}


def _clip(random) -> tuple[dict, str, dict]:
    """A folder of CLIP or SigLIP."""
    kind = random.choice(["clip", "siglip"])
    shapes, config = _clip_shapes(kind)
    files = {"config.json": config, "vocab.json": {token: row for row, token in enumerate(PIECES)}}
    files |= {"merges.txt": b"#version: 0.2\nt h\nth e</w>\n", **_weights(random, _drawn(shapes))}
    if random.random() < 0.4:
        size = (
            {"size": {"shortest_edge": 16}, "crop_size": 16}
            if kind == "clip"
            else {"size": {"height": 16, "width": 16}}
        )
        files["preprocessor_config.json"] = size | {"resample": 3}
    return files, "", sets.captions(random)


def _static(random) -> tuple[dict, str, dict]:
    """A folder of model2vec."""
    state = {"embeddings": torch.rand(len(WORDS), 4)}
    if random.random() < 0.4:
        state = {"embeddings": torch.rand(5, 4), "mapping": torch.arange(len(WORDS)) % 5}
        state["weights"] = torch.rand(len(WORDS))
    files = {"model.safetensors": state, **_table_tokenizer(random)}
    if random.random() < 0.7:
        files["config.json"] = {"model_type": "model2vec", "normalize": True, "seq_length": 10}
    return files, "", sets.pairs(random)


def _open_clip(random) -> tuple[dict, str, dict]:
    """A checkpoint of open_clip, one layer a tower, of the width of one head."""
    width, joint = 64, 3
    shapes = {
        "visual.class_embedding": (width,),
        "visual.conv1.weight": (width, 3, 4, 4),
        "visual.positional_embedding": (5, width),
        "visual.proj": (width, joint),
        "token_embedding.weight": (9, width),
        "positional_embedding": (7, width),
        "text_projection": (width, joint),
        "logit_scale": (),
    }
    for norm in ("visual.ln_pre", "visual.ln_post", "ln_final"):
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    for layer in ("visual.transformer.resblocks.0.", "transformer.resblocks.0."):
        shapes |= {f"{layer}attn.in_proj_weight": (3 * width, width), f"{layer}attn.in_proj_bias": (3 * width,)}
        parts = {"attn.out_proj": (width, width), "mlp.c_fc": (8, width), "mlp.c_proj": (width, 8)}
        for part, shape in (parts | {"ln_1": (width,), "ln_2": (width,)}).items():
            shapes |= {f"{layer}{part}.weight": shape, f"{layer}{part}.bias": shape[:1]}
    state = _drawn(shapes)
    content = {"epoch": 3, "name": "run", "state_dict": {f"module.{key}": each for key, each in state.items()}}
    files = {"run/checkpoints/epoch_3.pt": random.choice([content, state])}
    if random.random() < 0.4:
        files["run/params.txt"] = b"model: ViT-B-32\nforce_quick_gelu: True\nprecision: amp\n"
    return files, "run/checkpoints/epoch_3.pt", sets.classes(random)


def _lightning(random) -> tuple[dict, str, dict]:
    state = _network("bare resnet", random.choice(["backbone.", "model.net.", ""]))
    if random.random() < 0.7:
        state |= {"head.weight": torch.rand(3, 2), "head.bias": torch.rand(3)}
    if random.random() < 0.4:
        state["loss.proxies"] = torch.rand(4, 3)
    content = {
        "epoch": 1,
        "global_step": 8,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_path": "/nowhere", "best_model_score": 0.5}},
        "hyper_parameters": {"temperature": 0.1, "loss": "ntxent", "widths": [2, 3]},
    }
    return {"checkpoints/epoch=1-step=8.ckpt": content}, "checkpoints/epoch=1-step=8.ckpt", sets.classes(random)


def _timm(random) -> tuple[dict, str, dict]:
    about = {"input_size": [3, 32, 32], "crop_pct": 0.9, "mean": [0.5] * 3, "std": [0.5] * 3, "classifier": "fc"}
    about |= {"interpolation": "bicubic", "num_classes": 4}
    config = {"architecture": "resnet10", "num_classes": 4, "pretrained_cfg": about}
    return {"config.json": config, **_weights(random, _network("resnet"))}, "", sets.classes(random)


def _metric_learning(random) -> tuple[dict, str, dict]:
    """A folder of pytorch-metric-learning, or the file of one loss."""
    number = random.choice(["_2", "_best2", ""])
    loss = random.choice([{"W": torch.rand(3, 4)}, {"proxies": torch.rand(4, 3)}, {"fc": torch.rand(3, 40)}])
    files = {
        f"trunk{number}.pth": _network("bare resnet"),
        f"embedder{number}.pth": {"weight": torch.rand(3, 2), "bias": torch.rand(3)},
        f"metric_loss{number}.pth": random.choice([loss, {f"module.loss.{key}": each for key, each in loss.items()}]),
        f"trunk_optimizer{number}.pth": {"state": {}, "param_groups": []},
    }
    if random.random() < 0.3:
        name = f"metric_loss{number}.pth"
        return {name: files[name]}, name, {}
    return files, random.choice(["", f"trunk{number}.pth"]), sets.classes(random)


def _partial_fc(random) -> tuple[dict, str, dict]:
    """Shards of class weights, with or without the backbone."""
    names = [f"softmax_fc_gpu_{rank}.pt" for rank in range(random.choice([1, 2, 3]))]
    files = {name: {"weight": torch.rand(3, 4)} for name in names}
    if random.random() < 0.3:
        names = [f"rank_{rank}_softmax_weight.pt" for rank in range(2)]
        files = {name: torch.rand(3, 4) for name in names}
    if random.random() < 0.5:
        return files | {"model.pt": _network("iresnet")}, "model.pt", sets.classes(random)
    return files, random.choice(names), {}


def _warpnet(random) -> tuple[dict, str, dict]:
    network, proxies = "Checkpoints/WarpNet_3_80Recall@1.pth", "Proxies/Proxy_3_80Recall@1.pth"
    files = {network: _network("warpnet"), proxies: {"Proxies": torch.rand(3, 4)}}
    if random.random() < 0.25:
        return files, proxies, {}
    return files, network, sets.classes(random)


def _class_weights(random) -> tuple[dict, str, dict]:
    rows = torch.rand(5, 4)
    content = random.choice([
        {"a.weight": torch.rand(4, 4), "classifier.weight": rows, "metric_loss_fn.proxies": rows + 1},
        {"state_dict": {"net.0.weight": rows, "loss_fn.W": rows.T}},
        {"model": {"module.head.fc.weight": rows, "module.fc.bias": rows[0]}},
        {"centers": rows},
        {"epoch": 2, "state_dict_backbone": {"conv1.weight": rows}, "state_dict_softmax_fc": {"weight": rows}},
        {"net": {"arcface.weight": rows}, "optimizer": {"state": {0: {"step": 1}}, "param_groups": [{"lr": 0.1}]}},
    ])
    return {"model.pth": content}, "model.pth", {}


def _of_network(*names: str, data: Callable) -> Callable:
    """Files of one network, where training code keeps a state dict."""

    def make(random) -> tuple[dict, str, dict]:
        state = _network(random.choice(names), random.choice(["", "", "module.", "_orig_mod."]))
        place = random.choice(["", "state_dict", "model", "model_state_dict", "net", "ema", "net_dict"])
        content = {place: state, "epoch": 3, "acc": 0.5, "args": {"lr": 0.1}} if place else state
        name = random.choice(["model.pth", "model.pt", "ckpt.t7"])
        return {name: content}, name, data(random)

    return make


# Families, each a function of a random generator: files by name, the one that is opened ("" is the folder), and
# training data for it.
MODELS: dict[str, Callable] = {
    "sentence-transformers": _sentence,
    "hugging face": _hugging_face,
    "clip": _clip,
    "static tables": _static,
    "open_clip": _open_clip,
    "lightning": _lightning,
    "timm": _timm,
    "metric learning": _metric_learning,
    "partial fc": _partial_fc,
    "warpnet": _warpnet,
    "class weights": _class_weights,
    "image networks": _of_network("resnet", "bare resnet", "vgg", "mobilenet", "iresnet", data=sets.classes),
    "ge2e": _of_network("ge2e", data=sets.speech),
    "tfeat": _of_network("tfeat", "hard tfeat", data=sets.classes),
}
