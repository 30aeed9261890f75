"""Text encoders in folders: sentence-transformers and Hugging Face, against slow derivations."""

import json
import socket
import sys
import types

import pytest
import torch
from safetensors.torch import save_file

from cocos.base.errors import InputError
from cocos.checkpoints import encoders, formats, transformers
from cocos.checkpoints.files import File

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "##s", "a", "dog", "query", ":", "."]
TEXTS = ["the cat sat on the mat.", "a dog", "Cats", "", "the dogs sat on a cat on a mat on a dog", "xyz the"]
CONFIG = {
    "model_type": "bert",
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "pad_token_id": 0,
}
TYPE = "sentence_transformers.models.{}"


def opened(path):
    """The checkpoint in a folder or an archive."""
    file = File(path)
    return formats.format_of(file).read(file)


def written(folder, files):
    """Write files: texts, plain data as JSON, or tensors."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".safetensors"):
            save_file(content, path)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def bert_weights(seed=0):
    """Names and shapes of BERT as published files have them, with random numbers."""
    draw = torch.Generator().manual_seed(seed)
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), width),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.gamma": (width,),
        "embeddings.LayerNorm.beta": (width,),
        "pooler.dense.weight": (width, width),
        "pooler.dense.bias": (width,),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
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
            shapes[f"encoder.layer.{layer}.{part}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{part}.bias"] = shape[:1]
    found = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    return found | {"embeddings.position_ids": torch.arange(CONFIG["max_position_embeddings"])[None]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of sentence-transformers around a tiny BERT: mean, dense layer, length 1, a prompt for queries."""
    dense = {
        "in_features": 8,
        "out_features": 6,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    draw = torch.Generator().manual_seed(1)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    linear = {"linear.weight": torch.randn(6, 8, generator=draw), "linear.bias": torch.randn(6, generator=draw)}
    return written(
        tmp_path_factory.mktemp("sentence"),
        {
            "modules.json": [{"path": path, "type": TYPE.format(name)} for path, name in modules],
            "config.json": CONFIG,
            "model.safetensors": bert_weights(),
            "vocab.txt": "\n".join(WORDS),
            "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 512},
            "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
            "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True},
            "2_Dense/config.json": dense,
            "2_Dense/model.safetensors": linear,
            "config_sentence_transformers.json": {"prompts": {"query": "query: "}, "similarity_fn_name": "dot"},
            "README.md": '* Loss: [<code>MultipleNegativesRankingLoss</code>](x) with:\n```json\n{"scale": 25.0}\n```',
        },
    )


@pytest.fixture(scope="module")
def tiny():
    """The tiny BERT itself, as the library of transformers makes it."""
    library = pytest.importorskip("transformers")
    model = library.BertModel(library.BertConfig(**CONFIG), add_pooling_layer=False).eval()
    weights = {name.replace("gamma", "weight").replace("beta", "bias"): each for name, each in bert_weights().items()}
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


def tokens(text, longest=10):
    """Ids by hand: lower case, whole words, a plural as a piece, a full stop and a colon as words."""
    pieces = []
    for word in text.lower().replace(".", " .").replace(":", " :").split():
        known = [word] if word in WORDS else [word[:-1], "##s"] if word[:-1] in WORDS and word[-1] == "s" else ["[UNK]"]
        pieces += known
    return [WORDS.index(piece) for piece in ["[CLS]", *pieces[: longest - 2], "[SEP]"]]


def slow(model, text, pool):
    """Encode one text alone, so that nothing is padded."""
    ids = tokens(text)
    with torch.no_grad():
        return pool(model(input_ids=torch.tensor([ids])).last_hidden_state[0], ids)


def test_a_folder_encodes_like_its_parts_by_hand(folder, tiny):
    """Prompt, cut, mean over tokens, dense layer and length, one text at a time."""
    checkpoint = opened(folder)
    linear = File(folder / "2_Dense" / "model.safetensors").content

    def by_hand(text):
        mean = slow(tiny, text, lambda vectors, ids: vectors.mean(0))
        return torch.nn.functional.normalize(torch.tanh(linear["linear.weight"] @ mean + linear["linear.bias"]), dim=0)

    for side, prompt in (("query", "query: "), ("candidate", "")):
        expected = torch.stack([by_hand(prompt + text) for text in TEXTS])
        torch.testing.assert_close(checkpoint.model.encode(TEXTS, "text", side), expected, atol=1e-6, rtol=1e-5)
    assert checkpoint.trained_with == "ntxent"
    assert checkpoint.recorded["ntxent"]["temperature"] == pytest.approx(1 / 25)
    assert "0.04 (recorded in its model card)" in checkpoint.loss()[1]
    assert checkpoint.contents["scores"] == "dot"
    assert "25" in checkpoint.notes[0]


@pytest.mark.parametrize(
    ("mode", "pool"),
    [
        ("cls", lambda vectors, ids: vectors[0]),
        ("lasttoken", lambda vectors, ids: vectors[-1]),
        ("max", lambda vectors, ids: vectors.amax(0)),
        ("mean_sqrt_len_tokens", lambda vectors, ids: vectors.sum(0) / len(ids) ** 0.5),
        (
            "weightedmean",
            lambda vectors, ids: sum((i + 1) * v for i, v in enumerate(vectors)) / sum(range(len(ids) + 1)),
        ),
    ],
)
def test_every_pooling_equals_one_text_at_a_time(tiny, mode, pool):
    """Short and long texts are pooled together; padding changes nothing."""
    files = {"vocab.txt": "\n".join(WORDS)}
    layers = [{"type": "Pooling", "modes": [mode, "mean"]}]
    encoder = encoders.build("sentence", {"transformer": CONFIG, "layers": layers, "files": files, "longest": 10})
    encoder.transformer.load_state_dict(tiny.state_dict())
    found = encoder.eval().requires_grad_(False).encode(TEXTS, "text", "query")
    expected = torch.stack([slow(tiny, text, pool) for text in TEXTS])
    torch.testing.assert_close(found[:, :8], expected, atol=1e-6, rtol=1e-5)


def test_tokens_of_a_prompt_can_be_left_out_of_the_mean(tiny):
    """`include_prompt` false, as Instructor models have it."""
    settings = {
        "transformer": CONFIG,
        "files": {"vocab.txt": "\n".join(WORDS)},
        "longest": 10,
        "prompts": {"query": "the cat "},
    }
    layers = [{"type": "Pooling", "modes": ["mean"], "include_prompt": False}]
    encoder = encoders.build("sentence", settings | {"layers": layers})
    encoder.transformer.load_state_dict(tiny.state_dict())
    found = encoder.eval().requires_grad_(False).encode(["a dog", "sat"], "text", "query")
    expected = torch.stack([slow(tiny, f"the cat {text}", lambda v, _: v[3:].mean(0)) for text in ("a dog", "sat")])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_nothing_reaches_for_the_network(folder, tiny, monkeypatch):
    """Opening and encoding open no socket."""

    def guard(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", guard)
    monkeypatch.setattr(socket, "create_connection", guard)
    assert opened(folder).model.encode(["a dog"], "text", "query").shape == (1, 6)


def test_the_old_layout_and_a_head_are_read(folder, tiny, tmp_path):
    """`0_BERT` with its settings, weights under `bert.` with a head, a vocabulary in tokenizer.json's place."""
    weights = {f"bert.{name}": each for name, each in bert_weights().items()} | {"cls.predictions.bias": torch.ones(15)}
    modules = [{"path": "0_BERT", "type": TYPE.format("BERT")}, {"path": "1_Pooling", "type": TYPE.format("Pooling")}]
    old = {
        "modules.json": modules,
        "0_BERT/config.json": CONFIG | {"architectures": ["BertForMaskedLM"], "torch_dtype": "float16"},
        "0_BERT/model.safetensors": {
            name: each.half() if each.is_floating_point() else each for name, each in weights.items()
        },
        "0_BERT/vocab.txt": "\n".join(WORDS),
        "0_BERT/sentence_bert_config.json": {"max_seq_length": None, "do_lower_case": True},
        "1_Pooling/config.json": {"pooling_mode": "cls"},
    }
    checkpoint = opened(written(tmp_path, old))
    assert checkpoint.contents["longest text"] == "12 tokens"
    assert checkpoint.trained_with is None
    found = checkpoint.model.encode(["a dog"], "text", "query")
    torch.testing.assert_close(found[0], slow(tiny, "a dog", lambda v, _: v[0]), atol=0.02, rtol=0.02)
    assert found.dtype == torch.float32


def test_a_text_encoder_without_modules_takes_the_mean_and_says_so(tiny, tmp_path):
    """A folder of Hugging Face, its weights in two shards."""
    weights = bert_weights()
    shards = [dict(list(weights.items())[:20]), dict(list(weights.items())[20:])]
    index = {name: f"model-{row}.safetensors" for row, shard in enumerate(shards) for name in shard}
    files = {
        "config.json": CONFIG,
        "vocab.txt": "\n".join(WORDS),
        "model.safetensors.index.json": {"weight_map": index},
    }
    files |= {f"model-{row}.safetensors": shard for row, shard in enumerate(shards)}
    checkpoint = opened(written(tmp_path, files))
    assert any("mean" in note for note in checkpoint.notes)
    found = checkpoint.model.encode(["a dog"], "text", "query")[0]
    torch.testing.assert_close(found, slow(tiny, "a dog", lambda v, _: v.mean(0)), atol=1e-6, rtol=1e-5)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match="model-1.safetensors"):
        opened(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"embeddings')
    with pytest.raises(InputError, match="index.json"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("modules.json", [{"path": "", "type": "my_package.Transformer"}], "my_package.Transformer"),
        ("modules.json", [{"path": "", "type": TYPE.format("Transformer")}, {"type": TYPE.format("Router")}], "Router"),
        ("modules.json", [{"path": "", "type": TYPE.format("CLIPModel")}], "CLIPModel"),
        ("modules.json", {"0": "Transformer"}, "modules.json"),
        ("config.json", CONFIG | {"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
        ("config.json", CONFIG | {"model_type": "timm_wrapper"}, "timm_wrapper"),
        ("config.json", CONFIG | {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "os.system"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "token_embeddings"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "many"),
        ("sentence_bert_config.json", {"transformer_task": "text-generation"}, "text-generation"),
    ],
)
def test_what_is_not_known_is_refused_by_name(folder, tmp_path, name, content, told):
    """Nothing that a file names is imported, and nothing is guessed."""
    copy = tmp_path / "copy"
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for place, raw in files.items():
        (copy / place).parent.mkdir(parents=True, exist_ok=True)
        (copy / place).write_bytes(raw)
    written(copy, {name: content})
    with pytest.raises(InputError, match=told):
        opened(copy)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"config.json": CONFIG | {"num_hidden_layers": 10**9}}, "num_hidden_layers"),
        ({"config.json": CONFIG | {"hidden_size": 10**12}}, "hidden_size"),
        ({"config.json": CONFIG | {"num_hidden_layers": 3}}, "encoder.layer.2"),
        ({"config.json": CONFIG | {"vocab_size": 99}}, "word_embeddings"),
        ({"vocab.txt": "\n".join([*WORDS, "more"])}, "15"),
        ({"vocab.txt": "the\ncat"}, "UNK"),
        ({"vocab.txt": "", "tokenizer.json": "{}"}, "tokenizer.json"),
        ({"tokenizer.json": {"model": {"type": "WordPiece", "vocab": 3}}}, "tokenizer"),
    ],
)
def test_files_that_do_not_fit_are_one_sentence(tiny, tmp_path, change, told):
    """Sizes that the weights do not explain, missing weights, a vocabulary of another size."""
    files = {"config.json": CONFIG, "vocab.txt": "\n".join(WORDS), "model.safetensors": bert_weights()}
    written(tmp_path, files | change)
    with pytest.raises(InputError, match=told):
        opened(tmp_path).model.encode(["the cat"], "text", "query")


def test_a_configuration_that_names_code_builds_nothing_by_any_way():
    """Also where a checkpoint of cocos records it."""
    evil = CONFIG | {"auto_map": {"AutoModel": "evil.Model"}}
    layers = [{"type": "Pooling", "modes": ["mean"]}]
    with pytest.raises(InputError, match=r"auto_map.*evil\.Model"):
        encoders.build("sentence", {"transformer": evil, "layers": layers, "files": {}})


def test_an_adapter_is_refused_with_how_to_merge_it(tmp_path):
    """PEFT saves a change of a model without the model."""
    written(tmp_path, {"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": "some/model"}})
    for modules in ({}, {"modules.json": [{"path": "", "type": TYPE.format("Transformer")}]}):
        written(tmp_path, modules)
        with pytest.raises(InputError, match=r"some/model.*merge_and_unload.*save_pretrained"):
            opened(tmp_path)


def test_without_the_library_one_sentence_says_how_to_install_it(folder, monkeypatch):
    """Opening needs nothing; building the model needs transformers."""
    checkpoint = opened(folder)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(InputError, match=r"transformers.*cocos-metric\[text\]"):
        _ = checkpoint.model


def test_libraries_that_do_not_fit_together_are_blamed_and_no_model(folder, tmp_path, monkeypatch):
    """As torchvision raises beside another torch: no ImportError, in the middle of an import."""
    (tmp_path / "bin" / "transformers").mkdir(parents=True)
    why = "operator torchvision::nms does not exist"
    (tmp_path / "bin" / "transformers" / "__init__.py").write_text(f"raise RuntimeError({why!r})")
    checkpoint = opened(folder)
    for name in [each for each in sys.modules if each.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "bin")
    with pytest.raises(InputError, match=rf"transformers is installed and cannot be imported \(RuntimeError: {why}\)"):
        _ = checkpoint.model


def test_a_part_of_a_library_that_does_not_fit_is_blamed_as_well(monkeypatch):
    """The library imports its models when they are named."""

    class Late(types.ModuleType):
        def __getattr__(self, name):
            raise RuntimeError(f"Failed to import {name}")

    monkeypatch.setitem(sys.modules, "transformers", Late("transformers"))
    with pytest.raises(InputError, match="transformers is installed and cannot be imported"):
        transformers.imported("bert")
