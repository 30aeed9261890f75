"""Small files of every kind of checkpoint and of training data, of random numbers from numpy generators.

Each builder writes into an empty folder, and returns what to embed: label -> checkpoint; train and test are splits.
"""

import argparse
import importlib.util
import io
import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import cocos
from golden import inputs
from golden.store import DOUBLE

# Relative error of an encoder in float32: its sums may have another order on another processor.
ENCODER = 1e-6
FEATURES, WORD, WIDTH, REGIONS, IMAGES = 5, 4, 6, 3, 6
CAPTIONS = [
    "A man's dog doesn't run.",
    'Two dogs, near a sign that reads "stop."',
    "a dog",
    "The man sits. It is late.",
]
CAPTIONS += ["A black-and-white dog; the sign (red) is 3.5 ft. tall!"]
WORDS = "<pad> <start> <end> <unk> a man 's dog does n't run . two dogs , near sign that `` '' the sits is it".split()
TEXTS = [
    "the cat sat on the mat.",
    "a dog",
    "Cats",
    "the dogs sat on a cat",
    "xyz the",
    "a mat on a dog",
    "a cat",
    "on",
]
# Models of `--model`: of texts, and of images.
MODELS = """
import torch


def texts(items):
    return torch.tensor([[float(ord(letter)) for letter in f"{text:<48}"[:48]] for text in items]) + 1


def pixels(images):
    return images.flatten(1) + 0.1


pixels.images = {"resize": [4, 4]}


def build(content):
    return lambda rows: rows @ content["matrix"]
"""


def example() -> "cocos.Embeddings":
    """Embeddings of 300 images and 1,500 captions of the embedded example, as they were encoded once."""
    rows = np.load(Path(__file__).with_name("example.npz"))
    sides = (torch.from_numpy(rows[name]) for name in ("query", "candidate", "query_group", "candidate_group"))
    return cocos.Embeddings(*sides, directions=("i2t", "t2i"))


def write_example() -> None:
    """Encode the embedded example, and store its first 300 images."""
    path = Path(cocos.__file__).parent / "example" / "emoji_ntxent.pt"
    embeddings = cocos.open(path).embed(device="cpu")
    captions = embeddings.candidate_group < 300
    np.savez_compressed(
        Path(__file__).with_name("example.npz"),
        query=embeddings.query[:300].numpy(),
        candidate=embeddings.candidate[captions].numpy(),
        query_group=embeddings.query_group[:300].numpy(),
        candidate_group=embeddings.candidate_group[captions].numpy(),
    )


def state_dict(shapes: dict, seed: int, size: float = 0.7) -> dict[str, torch.Tensor]:
    """Random float32 tensors by name; variances are positive, and no bias is zero."""
    random, state = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        values = np.asarray(random.normal(size=shape) * (size or (np.prod(shape[1:]) or 1) ** -0.5))
        values = np.abs(values) + 0.5 if name.endswith("running_var") else values
        state[name] = torch.tensor(9) if name.endswith("num_batches_tracked") else torch.from_numpy(values).float()
    return state


def picture(path: Path, number: int = 0) -> Path:
    """Write a small image without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng([11, number, *path.name.encode()]).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG")
    return path


def lines(path: Path, *rows: str) -> Path:
    """Write lines of text, and the folders around them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


# VSE++ and VSRN.


def vocabulary(path: Path) -> None:
    """Pickle a `Vocabulary` as the published vocab.py does when it is run as a script."""
    cls = type("Vocabulary", (), {"__module__": "vocab"})
    words = cls()
    words.word2idx = {word: number for number, word in enumerate(WORDS)}
    words.idx2word, words.idx = dict(enumerate(WORDS)), len(WORDS)
    module = types.ModuleType("vocab")
    module.Vocabulary = cls
    sys.modules["vocab"] = module
    try:
        path.write_bytes(pickle.dumps(words, 2))
    finally:
        del sys.modules["vocab"]


def precomputed(folder: Path, shape: tuple[int, ...], name: str = "f30k_precomp") -> Path:
    """Features, captions and vocabulary as VSE++ has them: five captions of each image."""
    folder.mkdir(parents=True)
    features = np.random.default_rng(4).normal(size=(IMAGES, *shape)).astype("float32")
    for split in ("train", "test"):
        np.save(folder / f"{split}_ims.npy", features if split == "train" else features[:4])
        rows = [CAPTIONS[(image + n) % 5] for image in range(IMAGES if split == "train" else 4) for n in range(5)]
        lines(folder / f"{split}_caps.txt", *rows)
    vocabulary(folder / f"{name}_vocab.pkl")
    return folder


def text_tower(layers: int) -> dict[str, torch.Tensor]:
    shapes = {"embed.weight": (len(WORDS), WORD)}
    for layer in range(layers):
        shapes[f"rnn.weight_ih_l{layer}"] = (3 * WIDTH, WIDTH if layer else WORD)
        shapes[f"rnn.weight_hh_l{layer}"] = (3 * WIDTH, WIDTH)
        shapes |= {f"rnn.bias_{side}_l{layer}": (3 * WIDTH,) for side in ("ih", "hh")}
    return state_dict(shapes, seed=1)


def vsrn_tower(batch_norm: bool) -> dict[str, torch.Tensor]:
    shapes = {"fc.weight": (WIDTH, FEATURES), "fc.bias": (WIDTH,)}
    for side in ("ih", "hh"):
        shapes |= {f"img_rnn.weight_{side}_l0": (3 * WIDTH, WIDTH), f"img_rnn.bias_{side}_l0": (3 * WIDTH,)}
    norm = {"weight": (WIDTH,), "bias": (WIDTH,), "running_mean": (WIDTH,), "running_var": (WIDTH,)}
    for layer in (1, 2, 3, 4):
        for part in ("g", "theta", "phi", "W.0"):
            shapes |= {f"Rs_GCN_{layer}.{part}.weight": (WIDTH, WIDTH, 1), f"Rs_GCN_{layer}.{part}.bias": (WIDTH,)}
        shapes |= {f"Rs_GCN_{layer}.W.1.{key}": shape for key, shape in norm.items()}
        shapes[f"Rs_GCN_{layer}.W.1.num_batches_tracked"] = ()
    if batch_norm:
        shapes |= {f"bn.{key}": shape for key, shape in norm.items()} | {"bn.num_batches_tracked": ()}
    return state_dict(shapes, seed=3, size=0.3)


def caption_model(folder: Path, image: dict, *, layers: int = 1, shape=(FEATURES,), legacy: bool = False, **changes):
    """A checkpoint of the published training code, with the data beside it."""
    options = {"data_name": "f30k_precomp", "data_path": "x", "vocab_path": "x", "margin": 0.2, "num_layers": layers}
    options |= {"max_violation": True, "measure": "cosine", "use_abs": False, "no_imgnorm": False, "cnn_type": "vgg19"}
    options |= {"criterion": "triplet", "tau": 0.1, "embed_size": WIDTH, "vocab_size": len(WORDS), "resume": ""}
    options |= changes
    content = {"epoch": 7, "model": [image, text_tower(layers)], "opt": argparse.Namespace(**options), "Eiters": 12}
    path, data = folder / "model_best.pth.tar", precomputed(folder / "data", shape, options["data_name"])
    torch.save(content | {"best_rsum": np.float64(401.5)}, path, _use_new_zipfile_serialization=not legacy)
    return {"train": cocos.open(path, data=data), "test": cocos.open(path, data=data)}


def vsepp(folder: Path, **changes):
    image = state_dict({"fc.weight": (WIDTH, FEATURES), "fc.bias": (WIDTH,)}, seed=2)
    return caption_model(folder, image, **changes)


def vsrn(folder: Path, *, batch_norm: bool = True, **changes):
    return caption_model(folder, vsrn_tower(batch_norm), shape=(REGIONS, FEATURES), **changes)


# Networks of images.


def bottleneck_shapes(prefix: str) -> dict:
    """A ResNet with one bottleneck in each stage, named as torchvision does."""
    stem, widths, outputs = 4, (4, 6, 8, 10), (16, 24, 32, 40)
    shapes = {f"{prefix}conv1.weight": (stem, 3, 7, 7)} | norm_shapes(f"{prefix}bn1", stem)
    before = stem
    for stage, (width, after) in enumerate(zip(widths, outputs, strict=True), 1):
        block = f"{prefix}layer{stage}.0"
        for place, (rows, columns, kernel) in enumerate(((width, before, 1), (width, width, 3), (after, width, 1)), 1):
            shapes[f"{block}.conv{place}.weight"] = (rows, columns, kernel, kernel)
            shapes |= norm_shapes(f"{block}.bn{place}", rows)
        shapes[f"{block}.downsample.0.weight"] = (after, before, 1, 1)
        shapes |= norm_shapes(f"{block}.downsample.1", after)
        before = after
    return shapes | {f"{prefix}fc.weight": (3, before), f"{prefix}fc.bias": (3,)}


def norm_shapes(prefix: str, width: int) -> dict:
    names = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{name}": (width,) for name in names} | {f"{prefix}.num_batches_tracked": ()}


def image_arrays(path: Path) -> Path:
    """Six images of three classes in an array."""
    images = np.random.default_rng(12).integers(0, 256, (6, 40, 40, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=[0, 0, 1, 1, 2, 2])
    return path


def warpnet(folder: Path):
    """A network and the proxies of its epoch."""
    shapes = bottleneck_shapes("Backbone.") | {"Backbone.Embedding.weight": (5, 40), "Backbone.Embedding.bias": (5,)}
    path = folder / "Checkpoints" / "WarpNet_40_0.712Recall@1.pth"
    for place in (path.parent, folder / "Proxies"):
        place.mkdir()
    torch.save(state_dict(shapes, seed=20, size=0), path)
    proxies = state_dict({"Proxies": (3, 5)}, seed=21)
    torch.save(proxies, folder / "Proxies" / "Proxy_40_0.712Recall@1.pth")
    return {"": cocos.open(path, data=image_arrays(folder / "train.npz"))}


def iresnet(folder: Path, *, kernel: int, ranks: tuple[int, ...]):
    """A face network, and class weights in one file a rank."""
    widths, places, dimensions = (4, 4, 5, 6, 7), 2, 6
    shapes = {"conv1.weight": (4, 3, kernel, kernel), "prelu.weight": (4,)} | norm_shapes("bn1", 4)
    for stage, (before, after) in enumerate(zip(widths, widths[1:], strict=False), 1):
        block = f"layer{stage}.0"
        shapes |= {f"{block}.conv1.weight": (after, before, 3, 3), f"{block}.conv2.weight": (after, after, 3, 3)}
        shapes |= {f"{block}.prelu.weight": (after,)} | norm_shapes(f"{block}.bn1", before)
        shapes |= norm_shapes(f"{block}.bn2", after) | norm_shapes(f"{block}.bn3", after)
        if stage > 1 or kernel == 3 or before != after:
            shapes |= {f"{block}.downsample.0.weight": (after, before, 1, 1)} | norm_shapes(
                f"{block}.downsample.1", after
            )
    shapes |= norm_shapes("bn2", 7) | {"fc.weight": (dimensions, 7 * places**2), "fc.bias": (dimensions,)}
    shapes |= norm_shapes("features", dimensions)
    path = folder / "model.pt"
    torch.save(state_dict(shapes, seed=22, size=0), path)
    for rank, classes in enumerate(ranks):
        torch.save(state_dict({"weight": (classes, dimensions)}, seed=30 + rank), folder / f"softmax_fc_gpu_{rank}.pt")
    return {"": cocos.open(path, data=image_arrays(folder / "train.npz"))}


def small_towers(folder: Path):
    """The embedded example: two small towers, as the package ships them."""
    return {"": cocos.open(Path(cocos.__file__).parent / "example" / "emoji_ntxent.pt")}


# Folders that a library made.

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
PIECES = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "th", "the</w>"]
BERT_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the cat sat on mat ##s a dog query : .".split()]
BERT = {"model_type": "bert", "vocab_size": len(BERT_WORDS), "hidden_size": 8, "num_hidden_layers": 2}
BERT |= {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 16, "pad_token_id": 0}


def bert_shapes() -> dict:
    width, inner = BERT["hidden_size"], BERT["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": (len(BERT_WORDS), width)}
    shapes |= {
        "embeddings.position_embeddings.weight": (16, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    shapes |= {"embeddings.LayerNorm.weight": (width,), "embeddings.LayerNorm.bias": (width,)}
    shapes |= {"pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
    for layer in range(BERT["num_hidden_layers"]):
        for part, shape in {
            **{f"attention.self.{name}": (width, width) for name in ("query", "key", "value")},
            "attention.output.dense": (width, width),
            "attention.output.LayerNorm": (width,),
            "intermediate.dense": (inner, width),
            "output.dense": (width, inner),
            "output.LayerNorm": (width,),
        }.items():
            shapes |= {f"encoder.layer.{layer}.{part}.weight": shape, f"encoder.layer.{layer}.{part}.bias": shape[:1]}
    return shapes


def pair_lines(path: Path) -> Path:
    """Eight pairs of texts, as JSON lines."""
    rows = [json.dumps({"query": text, "positive": TEXTS[(place + 3) % 8]}) for place, text in enumerate(TEXTS)]
    return lines(path, *rows)


def bert_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(state_dict(bert_shapes(), seed=40), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(BERT | {"architectures": ["BertModel"]}))
    lines(folder / "vocab.txt", *BERT_WORDS)
    about = {"do_lower_case": True, "model_max_length": 16, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def sentence_transformers(folder: Path):
    """A tiny BERT, mean pooling, a dense layer, unit length, and a prompt for queries."""
    model = bert_folder(folder / "model")
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds)
    ]
    for name, content in {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": {"in_features": 8, "out_features": 6, "bias": True,
                                "activation_function": "torch.nn.modules.activation.Tanh"},
        "config_sentence_transformers.json": {"prompts": {"query": "query: "}, "similarity_fn_name": "cosine"},
    }.items():  # fmt: skip
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text(json.dumps(content))
    dense = state_dict({"linear.weight": (6, 8), "linear.bias": (6,)}, seed=41)
    save_file(dense, model / "2_Dense" / "model.safetensors")
    (model / "3_Normalize").mkdir(exist_ok=True)
    lines(
        model / "README.md",
        "* Loss: [<code>MultipleNegativesRankingLoss</code>](x) with:",
        '```json\n{"scale": 25.0}\n```',
    )
    return {"": cocos.open(model, data=pair_lines(folder / "pairs.jsonl"))}


def hugging_face(folder: Path):
    """A tiny BERT alone."""
    return {"": cocos.open(bert_folder(folder / "model"), data=pair_lines(folder / "pairs.jsonl"))}


def image_text_folder(folder: Path, kind: str):
    """A tiny CLIP or SigLIP of random weights."""
    import transformers

    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = tower | {"vocab_size": len(PIECES), "max_position_embeddings": 12}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = tower | {"image_size": 16, "patch_size": 8}
    if kind == "clip":
        model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
        )
    else:
        text["projection_size"] = 16
        model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
    place = folder / "model"
    place.mkdir()
    shapes = {name: tuple(each.shape) for name, each in model.state_dict().items() if each.is_floating_point()}
    weights = state_dict(shapes, seed=42, size=0.3)
    weights |= {name: torch.tensor(value).reshape(shapes[name]) for name, value in
                (("logit_scale", 3.0), ("logit_bias", -9.0)) if name in shapes}  # fmt: skip
    save_file(weights, place / "model.safetensors")
    about = {"model_type": kind, "text_config": text, "vision_config": vision, "projection_dim": 8}
    (place / "config.json").write_text(json.dumps(about))
    (place / "vocab.json").write_text(json.dumps({token: row for row, token in enumerate(PIECES)}))
    (place / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    data = caption_table(folder / "data")
    return {"": cocos.open(place, data=data)}


# Embeddings, scores, class vectors.


def float32(arrays: dict) -> dict:
    return {name: array.astype("float32") if array.dtype == np.float64 else array for name, array in arrays.items()}


def embeddings_npz(folder: Path):
    opened = {}
    for name in ("groups", "labelled", "proxies", "negatives"):
        np.savez(folder / f"{name}.npz", **float32(inputs.SETS[name]()))
        opened[name] = cocos.open(folder / f"{name}.npz")
    return opened


def embeddings_tensors(folder: Path):
    rows = {name: torch.from_numpy(array) for name, array in float32(inputs.groups_set()).items()}
    save_file(rows, folder / "groups.safetensors")
    torch.save(rows | {"directions": ["i2t", "t2i"]}, folder / "groups.pt")
    return {name: cocos.open(folder / f"groups.{name}") for name in ("safetensors", "pt")}


def scores_files(folder: Path):
    arrays = inputs.scores_set()
    np.savez(folder / "scores.npz", **arrays)
    scores, labels = arrays["scores"], arrays["positive"].astype(int)
    rows = [
        {"query": f"q{q}", "candidate": f"c{c}", "score": float(scores[q, c]), "label": int(labels[q, c])}
        for q in range(6)
        for c in range(36)
    ]
    lines(
        folder / "scores.csv", ",".join(rows[0]), *(",".join(map(repr, row.values())).replace("'", "") for row in rows)
    )
    lines(folder / "scores.jsonl", *map(json.dumps, rows))
    return {name: cocos.open(folder / f"scores.{name}") for name in ("npz", "csv", "jsonl")}


def shards(folder: Path):
    opened, arrays = {}, float32(inputs.groups_set())
    for kind in ("npy", "npz", "safetensors"):
        place = folder / kind
        place.mkdir()
        for number, (images, captions) in enumerate(((slice(0, 15), slice(0, 50)), (slice(15, 40), slice(50, 120)))):
            part = {name: array[images if name.startswith("query") else captions] for name, array in arrays.items()}
            if kind == "npy":
                for name, rows in part.items():
                    np.save(place / f"{name}_{number:05d}.npy", rows)
            elif kind == "npz":
                np.savez(place / f"shard_{number:05d}.npz", **part)
            else:
                tensors = {name: torch.from_numpy(rows.copy()) for name, rows in part.items()}
                save_file(tensors, place / f"part-{number + 1}-of-2.safetensors")
        opened[kind] = cocos.open(place)
    place = folder / "retrieval"
    place.mkdir()
    pairs = float32(inputs.pairs_set())
    for number, rows in enumerate((slice(0, 40), slice(40, 90))):
        np.save(place / f"img_emb_{number}.npy", pairs["query"][rows])
        np.save(place / f"text_emb_{number}.npy", pairs["candidate"][rows])
    opened["img_emb"] = cocos.open(place)
    return opened


def class_vectors(folder: Path):
    rows = state_dict({"rows": (12, 8)}, seed=44)["rows"]
    opened = {}
    for name, content in {
        "proxies": {"proxies": rows},
        "W": {"W": rows.T.contiguous()},
        "softtriple": {"fc": rows[:10].T.contiguous()},
        "warp": {"Proxies": rows},
        "classifier": {"model": {"module.head.fc.weight": rows, "module.fc.bias": rows[0]}},
        "softmax_fc_gpu_0": {"weight": rows},
    }.items():
        torch.save(content, folder / f"{name}.pt")
        opened[name] = cocos.open(folder / f"{name}.pt")
    return opened


def own_model(folder: Path):
    """A checkpoint with `--model FILE.py:build`, and features with labels."""
    lines(folder / "models.py", MODELS)
    torch.save(state_dict({"matrix": (7, 5)}, seed=45), folder / "matrix.pt")
    features = np.random.default_rng(13).normal(size=(12, 7)).astype("float32")
    np.savez(folder / "features.npz", features=features, labels=np.arange(12) // 3)
    model, data = f"{folder / 'models.py'}:build", folder / "features.npz"
    return {"": cocos.open(folder / "matrix.pt", model=model, data=data)}


# Kinds of training data.


def encoded(folder: Path, data: Path, kind: str, splits: tuple[str, ...] = ("",)) -> dict:
    """Training data, encoded by a function of texts or of images (or of both)."""
    lines(folder / "models.py", MODELS)
    texts, pixels = (f"{folder / 'models.py'}:{name}" for name in ("texts", "pixels"))
    model = {"texts": texts, "images": pixels}.get(kind) or both(folder)
    return {split: cocos.open(data, model=model) for split in splits}


def both(folder: Path) -> str:
    lines(folder / "towers.py", MODELS, "towers = {'query': pixels, 'candidate': texts}", "def two(): return towers")
    return f"{folder / 'towers.py'}:two"


def pair_tables(folder: Path):
    header, rows = (
        ("anchor", "positive", "negative_1"),
        [(TEXTS[n], TEXTS[(n + 3) % 8], TEXTS[(n + 5) % 8]) for n in range(5)],
    )
    lines(folder / "pairs.csv", ",".join(header), *(",".join(row) for row in rows))
    lines(folder / "pairs.jsonl", *(json.dumps(dict(zip(header, row, strict=True))) for row in rows))
    lines(folder / "labelled.tsv", "text\tlabel", *(f"{text}\t{place % 3}" for place, text in enumerate(TEXTS)))
    names = ("pairs.csv", "pairs.jsonl", "labelled.tsv")
    return {name: encoded(folder, folder / name, "texts")[""] for name in names}


def beir(folder: Path):
    place = folder / "beir"
    corpus = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(TEXTS)]
    lines(place / "corpus.jsonl", *map(json.dumps, corpus))
    lines(place / "queries.jsonl", *(json.dumps({"_id": f"q{n}", "text": f"which {n}"}) for n in range(3)))
    judged = ("q0\td1\t2", "q0\td2\t0", "q1\td2\t1", "q2\td3\t1", "q2\td1\t1")
    lines(place / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", *judged)
    return encoded(folder, place, "texts", ("test",))


def caption_table(place: Path) -> Path:
    rows = [(f"{n}.png", f"{TEXTS[n]}{' again' * k}") for n in range(5) for k in range(2)]
    for name, _ in rows:
        picture(place / "images" / name)
    return lines(place / "captions.txt", "image,caption", *(f"{name},{text}" for name, text in rows))


def caption_tables(folder: Path):
    return encoded(folder, caption_table(folder / "data"), "both")


def coco_captions(folder: Path):
    place, images = folder / "coco", [{"id": n + 10, "file_name": f"{n:012d}.png"} for n in range(4)]
    annotations = [{"id": n, "image_id": n % 4 + 10, "caption": text} for n, text in enumerate(TEXTS)]
    for image in images:
        picture(place / "train2017" / image["file_name"])
    content = json.dumps({"images": images, "annotations": annotations})
    lines(place / "annotations" / "captions_train2017.json", content)
    return encoded(folder, place, "both")


def karpathy_captions(folder: Path):
    place, entries = folder / "karpathy", []
    for n, split in enumerate(("train", "train", "train", "val", "test", "test")):
        picture(place / "images" / f"{n}.png")
        sentences = [{"raw": TEXTS[n]}, {"raw": f"{TEXTS[n]} again"}]
        entries.append({"filename": f"{n}.png", "split": split, "sentences": sentences})
    lines(place / "dataset_flickr30k.json", json.dumps({"images": entries, "dataset": "flickr30k"}))
    return encoded(folder, place, "both", ("train", "test"))


def flickr_captions(folder: Path):
    place = folder / "flickr"
    for n in range(4):
        picture(place / "flickr30k-images" / f"{n}.png")
    rows = [f"{n}.png#{k}\t{TEXTS[n + k]}" for n in range(4) for k in range(2)]
    return encoded(folder, lines(place / "results_20130124.token", *rows), "both")


def pickled_captions(folder: Path):
    """The pickles of Bleeker & de Rijke: bytes of images, and captions."""
    place = folder / "study"
    place.mkdir()
    content = {"images": {}, "captions": {}}
    for n in range(4):
        stream = io.BytesIO(picture(folder / f"{n}.png").read_bytes())
        content["images"][n] = {"image": stream.getvalue(), "caption_ids": [2 * n, 2 * n + 1], "filename": f"{n}.png"}
        for k in (2 * n, 2 * n + 1):
            content["captions"][k] = {
                "caption": TEXTS[k],
                "imgid": n,
                "tokens": TEXTS[k].split(),
                "filename": f"{n}.png",
            }
    for split in ("train", "val", "test"):
        (place / f"{split}_set.p").write_bytes(pickle.dumps(content, 4))
    return encoded(folder, place, "both", ("train",))


def image_folders(folder: Path):
    for name in ("cats/a.png", "cats/more/b.png", "dogs/c.png", "dogs/d.png"):
        picture(folder / "pets" / name)
    return encoded(folder, folder / "pets", "images")


def birds(folder: Path):
    """CUB-200-2011."""
    place, rows = folder / "CUB_200_2011", []
    for label, name in ((1, "001.Albatross"), (100, "100.Pelican"), (101, "101.White_Pelican"), (200, "200.Wren")):
        rows += [(len(rows) + 1 + n, label, f"{name}/{name[4:]}_{n}.jpg") for n in (0, 1)]
    lines(place / "images.txt", *(f"{image} {path}" for image, _, path in rows))
    lines(place / "image_class_labels.txt", *(f"{image} {label}" for image, label, _ in rows))
    lines(place / "train_test_split.txt", *(f"{image} {image % 2}" for image, *_ in rows))
    for *_, path in rows:
        picture(place / "images" / path)
    return encoded(folder, place, "images", ("train", "test"))


def cars(folder: Path):
    """Cars-196."""
    import scipy.io

    place, labels = folder / "cars", (1, 1, 98, 98, 99, 99, 196, 196)
    kinds = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "relative_im_path", "class", "test")
    annotations = np.empty((1, len(labels)), [(name, object) for name in kinds])
    for n, label in enumerate(labels):
        annotations[0, n] = (1, 1, 5, 5, f"car_ims/{n:06d}.jpg", label, n % 2)
        picture(place / "car_ims" / f"{n:06d}.jpg")
    names = np.array([["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]], dtype=object)
    scipy.io.savemat(place / "cars_annos.mat", {"class_names": names, "annotations": annotations}, do_compression=True)
    return encoded(folder, place, "images", ("train", "test"))


def products(folder: Path):
    """Stanford Online Products."""
    place, start = folder / "products", 1
    for split, classes in (("train", (1, 2)), ("test", (11319, 11320))):
        rows = [
            (label, f"{kind}_final/{label:012d}_{n}.JPG")
            for label, kind in zip(classes, ("bicycle", "mug"), strict=True)
            for n in (0, 1)
        ]
        listed = [f"{start + n} {label} {label % 2 + 1} {path}" for n, (label, path) in enumerate(rows)]
        lines(place / f"Ebay_{split}.txt", "image_id class_id super_class_id path", *listed)
        start += len(rows)
        for _, path in rows:
            picture(place / path)
    return encoded(folder, place, "images", ("train", "test"))


def clothes(folder: Path):
    """In-shop Clothes Retrieval."""
    place, rows = folder / "inshop", []
    for who, what, item, parts in (
        ("WOMEN", "Dresses", 2, ("train", "train")),
        ("MEN", "Denim", 7, ("train", "train")),
        ("WOMEN", "Dresses", 4, ("query", "gallery", "gallery")),
        ("MEN", "Denim", 9, ("query", "gallery")),
    ):
        rows += [(f"img/{who}/{what}/id_{item:08d}/0{n}_1_front.jpg", item, part) for n, part in enumerate(parts, 1)]
    listed = (f"{path:<70} id_{item:08d} {part:>12}" for path, item, part in rows)
    lines(place / "Eval" / "list_eval_partition.txt", str(len(rows)), "image_name item_id evaluation_status", *listed)
    for path, *_ in rows:
        picture(place / "Img" / path)
    return encoded(folder, place, "images", ("train", "test"))


def landmarks(folder: Path):
    """Google Landmarks."""
    place, rows = (
        folder / "gld",
        {"0a1b2c3d4e5f6a7b": 5, "0a1b2c3d4e5f6a7c": 5, "f0e1d2c3b4a59687": 70, "f0e1d2c3b4a59688": 70},
    )
    lines(
        place / "train.csv", "id,url,landmark_id", *(f"{name},http://x/{name},{label}" for name, label in rows.items())
    )
    for name in rows:
        picture(place / "train" / name[0] / name[1] / name[2] / f"{name}.jpg")
    return encoded(folder, place / "train.csv", "images")


def saved_datasets(folder: Path):
    import datasets

    datasets.disable_progress_bars()
    rows = [{"anchor": TEXTS[n], "positive": TEXTS[(n + 3) % 8]} for n in range(6)]
    datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
    return encoded(folder, folder / "saved", "texts")


CHECKPOINTS = {
    "vsepp": vsepp,
    "vsepp use_abs": lambda folder: vsepp(folder, use_abs=True),
    "vsepp no_imgnorm": lambda folder: vsepp(folder, no_imgnorm=True, max_violation=False),
    "vsepp two layers": lambda folder: vsepp(folder, layers=2, criterion="ntxent", tau=0.07),
    "vsepp legacy": lambda folder: vsepp(folder, legacy=True),
    "vsrn": vsrn,
    "vsrn coco": lambda folder: vsrn(folder, data_name="coco_precomp"),
    "vsrn coco first": lambda folder: vsrn(folder, data_name="coco_precomp", batch_norm=False),
    "vsrn first": lambda folder: vsrn(folder, batch_norm=False, legacy=True),
    "warpnet": warpnet,
    "iresnet 3": lambda folder: iresnet(folder, kernel=3, ranks=(1, 2)),
    "iresnet 7": lambda folder: iresnet(folder, kernel=7, ranks=(3,)),
    "small towers": small_towers,
    "sentence-transformers": sentence_transformers,
    "hugging face": hugging_face,
    "clip": lambda folder: image_text_folder(folder, "clip"),
    "siglip": lambda folder: image_text_folder(folder, "siglip"),
    "npz": embeddings_npz,
    "tensors": embeddings_tensors,
    "scores": scores_files,
    "shards": shards,
    "class vectors": class_vectors,
    "own model": own_model,
    "data/pairs": pair_tables,
    "data/beir": beir,
    "data/caption tables": caption_tables,
    "data/coco": coco_captions,
    "data/karpathy": karpathy_captions,
    "data/flickr": flickr_captions,
    "data/pickles": pickled_captions,
    "data/folders": image_folders,
    "data/birds": birds,
    "data/cars": cars,
    "data/products": products,
    "data/clothes": clothes,
    "data/landmarks": landmarks,
    "data/saved": saved_datasets,
}
LIBRARIES = {
    "sentence-transformers": "sentence_transformers",
    "hugging face": "sentence_transformers",
    "clip": "transformers",
    "siglip": "transformers",
    "data/saved": "datasets",
}
OPTIONAL = tuple(f"{name}/" for name in LIBRARIES)


def installed(name: str) -> bool:
    """Whether the library that a checkpoint needs is here."""
    library = LIBRARIES.get(name)
    return library is None or importlib.util.find_spec(library) is not None


def tolerance(name: str) -> float:
    """Of the embeddings of a checkpoint: exact where no network runs."""
    stored = name in ("npz", "tensors", "scores", "shards", "class vectors") or name.startswith("data/")
    return DOUBLE if stored else ENCODER
