"""Text, names and tensors of strangers' files: work and memory grow with their bytes, and nothing is mapped."""

import ast
import itertools
import json
import os
import re
import resource
import struct
import sys
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from cocos.data import arrays
from typer.testing import CliRunner

import children
import cocos
from cocos import InputError
from cocos.base import tensor_files, untrusted
from cocos.checkpoints import inventory, recipes, tables
from cocos.checkpoints.files import file as files
from cocos.commands import app

HOUSE = Path(cocos.__file__).parent
# Budget of one opening: seconds of the processor, bytes.
MOST_CPU, MOST_MEMORY = 5.0, 500_000_000
CALLS = {"compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "split", "subn"}


# Files whose patterns read the package's own sources and captions, and nothing of a file that is given.
OWN = (
    "base/docstrings.py",
    "engine/kernel/structs.py",
    "losses/__init__.py",
    "reports/captions.py",
    "reports/formulas.py",
)


def ways(node, source, called):
    """How a pattern is used: by the call itself, or by the calls of the constant that it is compiled to."""
    if node.func.attr != "compile":
        return {node.func.attr}
    assigned = re.search(r"(\w+)\s*=\s*re\.compile\(", source.splitlines()[node.lineno - 1])
    return {way for name, way in called if name == assigned[1]} & CALLS


def patterns():
    """Every pattern over text of files: file and line, the pattern, its flags and how it is used."""
    sources = {path.relative_to(HOUSE).as_posix(): path.read_text("utf-8") for path in sorted(HOUSE.rglob("*.py"))}
    # A name, and what is called on it anywhere in the package.
    every = {pair for source in sources.values() for pair in re.findall(r"\b(\w+)\.(\w+)\(", source)}
    for place, source in sources.items():
        for node in ast.walk(ast.parse(source)) if place not in OWN and "re." in source else ():
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS
            if called and isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                given = [each for k in (*node.args[1:], *(k.value for k in node.keywords)) for each in ast.walk(k)]
                named = [getattr(re, each.attr, None) for each in given if isinstance(each, ast.Attribute)]
                flags = [each for each in named if isinstance(each, re.RegexFlag)]
                if isinstance(node.args[0], ast.Constant):
                    yield f"{place}:{node.lineno}", node.args[0].value, sum(flags), ways(node, source, every)


# Characters of a text, and seconds for it. A pattern that looks at each pair of
# characters takes a tenth of a second or more, one that looks at each character a few milliseconds.
LONG, SECONDS = 12_000, 0.05
# Times that a pattern is tried: other work on the machine slows some of them.
TRIES = 5
PIECES = ("a", "_", " ", "\n", "1", ".", "-", "a.", "_a", "a_", " \n", "1.", "-1", "((", '"', "'", "\\", "é", "/", "=")


def hostile(text):
    """Texts in which a pattern begins to match again and again, and hardly ever ends."""
    words = sorted(set(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[a-zA-Z]|\?P<\w+>", " ", text))))[:24]
    own = [*words, *(f"_{each}" for each in words), *(f".{each}" for each in words), *(f"{each}." for each in words)]
    for piece in itertools.chain(PIECES, own):
        yield (piece * (LONG // len(piece) + 1))[:LONG] + "!"
    for first, second in itertools.product(words[:5], ("_", ".1", " ", '": ', "=1")):
        yield (first + second) * (LONG // len(first + second)) + "\n!"


def seconds(pattern, text, ways):
    """Time of a pattern over a text, used as it is in the package."""
    begun = time.process_time()
    for way in {way if way in {"match", "fullmatch"} else "finditer" for way in ways}:
        found = getattr(pattern, way)(text)
        list(found) if way == "finditer" else found
    return time.process_time() - begun


def test_no_pattern_looks_at_pairs_of_characters():
    every = list(patterns())
    for place, text, flags, used in every:
        assert used, f"{place} is never used"
        pattern = re.compile(text, flags)
        for each in hostile(text if isinstance(text, str) else text.decode("latin-1")):
            given = each if isinstance(text, str) else each.encode("utf-8")
            assert any(seconds(pattern, given, used) < SECONDS for _ in range(TRIES)), (place, text, each[:20])
    assert len(every) > 70


@pytest.mark.parametrize("text", [r"^\s*-\s*loss:", r"(^|\.)\w*loss\w*\.W$"])
def test_the_test_of_patterns_notices_one_that_does(text):
    pattern = re.compile(text, re.MULTILINE)
    assert any(seconds(pattern, each, {"search"}) > SECONDS for each in hostile(text))


def opened(path, *more):
    """What `cocos inspect` says, within the budget, and its exit code."""
    begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = CliRunner().invoke(app, ["inspect", str(path), *more])
    spent, grown = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert spent < MOST_CPU and grown * 1024 < MOST_MEMORY, (spent, grown)
    assert done.exception is None or type(done.exception) is SystemExit, done.exception
    assert done.exit_code == 0 or done.stderr.count("\n") == 1
    return done


def sentence_folder(path, **files_beside):
    """A folder that begins as one of sentence-transformers does, which is enough for its side files to be read."""
    path.mkdir()
    held = {
        "modules.json": [{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}],
        "tokenizer.json": {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
    }
    for name, content in (held | files_beside).items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    safetensors.torch.save_file({"embedding.weight": torch.ones(1, 4)}, path / "model.safetensors")
    return path


@pytest.mark.parametrize("text", ["\n", " ", "- loss:", "losses.a", "\n - \n", '"loss": "', "<code>"])
def test_a_card_is_read_to_64_kib_and_at_once(tmp_path, text):
    """80 kB of newlines took 12 seconds."""
    pytest.importorskip("tokenizers")
    card = (text * (2**22 // len(text))).encode()
    done = opened(sentence_folder(tmp_path / "m", **{"README.md": card}))
    assert done.exit_code == 0


def test_a_loss_at_the_end_of_a_long_head_of_a_card_is_found(tmp_path):
    pytest.importorskip("tokenizers")
    card = b"- tag\n" * 10_000 + b"- loss:MultipleNegativesRankingLoss\n" + b"x" * 2**22
    assert "MultipleNegativesRankingLoss" in opened(sentence_folder(tmp_path / "m", **{"README.md": card})).stdout


def safe(path, names, size=4):
    """A safetensors file of square matrices under some names."""
    length = 4 * size * size
    header = json.dumps({
        name: {"dtype": "F32", "shape": [size, size], "data_offsets": [length * k, length * k + length]}
        for k, name in enumerate(names)
    }).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(length * len(names)))
    return path


LONG_NAMES = {
    "losses": ["x" + "loss" * 20_000 + str(k) for k in range(4)],
    "underscores": ["_" * 60_000 + str(k) for k in range(4)],
    "one": ["_cls" * 25_000],
}


@pytest.mark.parametrize("kind", LONG_NAMES)
@pytest.mark.parametrize("container", ["safetensors", "torch", "npz", "folder"])
def test_a_name_of_a_tensor_has_a_longest_length(tmp_path, kind, container):
    """320 kB of names had no end."""
    names, path = LONG_NAMES[kind], tmp_path / "c.safetensors"
    if container == "folder":
        path = sentence_folder(tmp_path / "m")
        safe(path / "only.safetensors", names)
        safe(path / "model.safetensors", names)
    elif container == "torch":
        torch.save({"state_dict": {name: torch.ones(4, 4) for name in names}}, path)
    elif container == "npz":
        np.savez(path.with_suffix(".npz"), **{name[:60_000]: np.ones((4, 4)) for name in names[:1]})
        path = path.with_suffix(".npz")
    else:
        safe(path, names)
    done = opened(path)
    assert done.exit_code == 2 and "expected at most 1" in done.stderr and len(done.stderr) < 600


def test_many_names_at_the_limit_take_time_in_their_number(tmp_path):
    begun = time.process_time()
    for name in (f"{'_loss' * 190}{k}.weight" for k in range(2000)):
        inventory.role(name, (9, 4), "float32")
    assert time.process_time() - begun < 2.0
    assert opened(safe(tmp_path / "a.safetensors", [f"{'_loss' * 190}{k}.W" for k in range(500)], 3)).exit_code in {
        0,
        2,
    }


ROLES = {
    "class weights": (
        *("loss.W", "criterion.losses.a.W", "losses.0.W", "closs.W", "head.weight", "a.cls.b.weight", "arc.0.weight"),
        "fc_out.weight",
    ),
    "centers": ("m.metric_loss.fc",),
    "proxies": ("proxies", "loss.proxies.weight", "my_proxy", "class_centers"),
    None: ("glue.W", "loss.x.W", "approximate", "recenter", "head_weight", "overhead.weight"),
}


@pytest.mark.parametrize(("name", "what"), [(name, what) for what, names in ROLES.items() for name in names])
def test_names_mean_what_they_meant(name, what):
    found = inventory.role(name, (20, 4), "float32")
    assert (found and found[0]) == what


BRACKETS = b'{"a":[' + b"[]," * (20 * 2**20) + b"[]]}"
SIDE_FILES = (
    "special_tokens_map.json",
    "tokenizer_config.json",
    "trainer_state.json",
    "tokenizer.json",
    "modules.json",
)


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_side_file_takes_no_more_than_such_files_do(tmp_path, name):
    """An archive of 64 kB took 1.57 GB and 15 seconds."""
    pytest.importorskip("tokenizers")
    place = sentence_folder(tmp_path / "m", **{"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n"})
    if name == "special_tokens_map.json":
        (place / "tokenizer.json").unlink()
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for each in place.iterdir():
            archive.write(each, each.name) if each.name != name else None
        archive.writestr(name, BRACKETS)
    assert (tmp_path / "b.zip").stat().st_size < 100_000
    done = opened(tmp_path / "b.zip")
    assert name == "special_tokens_map.json" or done.exit_code == 2


DOCUMENTS = {
    "lists": "[],", "objects": "{},", "pairs": '{"a":1},', "texts": '"aa",', "numbers": "1e1,", "wide": '"é😀",',
    "escaped": '"\\ud83d\\ude00",', "nested": "[[]],", "deep": '{"a":{"b":[]}},', "merges": '["ab","cd"],',
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_memory_of_a_document_is_bounded_before_it_is_parsed(kind):
    for number in (10, 3000, 40_000):
        text = "[" + DOCUMENTS[kind] * number + "1]"
        for given in (text, text.encode()):
            tracemalloc.start()
            json.loads(given)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert 1.05 * untrusted.memory(given) + 2000 > peak
    keys = "{" + ",".join(f'"{k}":1' for k in range(90_000)) + "}"
    tracemalloc.start()
    json.loads(keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert untrusted.memory(keys) > 0.95 * peak
    with pytest.raises(ValueError, match="MB of memory, expected at most"):
        untrusted.parsed("[" + DOCUMENTS[kind] * 40_000 + "1]", 10**6)


def test_the_vocabularies_of_large_models_are_below_the_bound():
    """262,144 tokens and 514,906 merges, as many as the largest tokenizer has."""
    tokens = {f"▁token{k:x}é😀": k for k in range(262_144)}
    merges = [[f"▁abcdef{k:x}", f"bcdefg{k:x}"] for k in range(514_906)]
    text = json.dumps({"model": {"vocab": tokens, "merges": merges}}, ensure_ascii=False).encode()
    assert 2.5e7 < len(text) < 3 * 2**24 and untrusted.memory(text) < untrusted.MAX_MEMORY


def test_rows_of_a_packed_table_take_no_more_than_its_size_explains(tmp_path, monkeypatch):
    import gzip

    monkeypatch.setattr(tables, "MAX_MEMORY", 48_000_000)
    with gzip.open(tmp_path / "a.jsonl.gz", "wb", 1) as stream:
        for _ in range(60):
            stream.write(b'{"query": [' + b"[]," * 30_000 + b"1]}\n")
    with pytest.raises(InputError, match=r"line \d+: the rows so far would take more than 48 MB"):
        tables.read(tmp_path / "a.jsonl.gz")


DTYPES = [
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2),
]


def every_dtype():
    found = {f"t{k}": torch.arange(6).reshape(2, 3).float().to(dtype) for k, dtype in enumerate(DTYPES)}
    return found | {"one": torch.tensor(2.5), "none": torch.zeros(0, 4), "empty": torch.zeros(3, 0).bfloat16()}


def raw(tensor):
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("held", [True, False])
def test_tensors_are_those_of_the_library_in_the_order_of_their_bytes(tmp_path, monkeypatch, held):
    path, right = tmp_path / "a.safetensors", every_dtype()
    safetensors.torch.save_file(right, path, {"about": "x"})
    monkeypatch.setattr(files, "MAX_HELD", 2**26 if held else 0)
    file = files.File(path)
    found = file.content
    assert found.keys() == right.keys() and file.metadata == {"about": "x"}
    for name, tensor in right.items():
        assert (
            found[name].dtype == tensor.dtype and found[name].shape == tensor.shape and raw(found[name]) == raw(tensor)
        )
    with safetensors.safe_open(path, "pt") as other:
        assert list(found) == list(other.offset_keys())


def test_damaged_headers_are_refused_where_the_library_refuses_them(tmp_path):
    import io
    import random

    draw, whole = random.Random(3), safetensors.torch.save(every_dtype(), {"a": "b"})
    length, opened_by = struct.unpack("<Q", whole[:8])[0], {(True, True): 0, (False, False): 0}
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 2])):
            damaged[draw.randrange(8 + length)] = draw.choice(b'0123456789[]{}",:ABFIU a\xff')
        given, reads = bytes(damaged), []
        for read in (lambda b: tensor_files.tensors(io.BytesIO(b), len(b)), safetensors.torch.load):
            try:
                read(given)
                reads.append(True)
            except (ValueError, KeyError, safetensors.SafetensorError):
                reads.append(False)
        opened_by[tuple(reads)] += 1  # a KeyError where they do not agree
    assert min(opened_by.values()) > 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a signal of Linux")
@pytest.mark.parametrize(
    "read", [lambda path: files.File(path).content, lambda path: arrays.load("train", path)], ids=["file", "arrays"]
)
def test_a_large_file_of_tensors_that_shrinks_ends_in_a_sentence(tmp_path, read):
    """A mapped one ended the process by a signal, SIGBUS."""
    path = tmp_path / "a.safetensors"
    rows = {"features": torch.ones(300_000, 64), "labels": torch.arange(300_000)}
    safetensors.torch.save_file(rows, path)

    def work():
        threading.Thread(target=lambda: (time.sleep(0.1), os.truncate(path, 4_000_000))).start()
        try:
            for _ in range(2000):
                read(path)
        except InputError as error:
            print(error)

    done = children.forked(work, tmp_path)
    assert done.returncode == 0 and "a.safetensors" in done.stdout and not done.stderr, (done.returncode, done.stderr)


def test_nothing_of_the_package_maps_a_file_but_matrices_larger_than_memory_may_hold():
    """`safe_open`, `load_file`, memory maps of Arrow and numpy; shards are written to a file without a name."""
    maps = re.compile(r"safe_open\(|load_file\(|memory_map\(|mmap_mode|\bmmap\.|np\.memmap\(")
    found = {path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py") if maps.search(path.read_text("utf-8"))}
    assert found == {"checkpoints/formats/embeddings.py", "checkpoints/formats/shards.py"}


def test_a_saved_dataset_that_shrinks_is_one_sentence(tmp_path):
    arrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    from cocos.checkpoints.data import saved_datasets

    table = arrow.table({"query": ["a b"] * 5000, "positive": ["c"] * 5000, "k": [[1, 2]] * 5000})
    for writer in (ipc.new_stream, ipc.new_file):
        with writer(str(tmp_path / "a.arrow"), table.schema) as stream:
            stream.write_table(table, max_chunksize=100)
        found = saved_datasets._table(tmp_path / "a.arrow")
        assert found.names == ("query", "positive", "k") and found.rows == 5000
        assert found.column("query") == ["a b"] * 5000 and found.column("k")[7] == [1, 2]
        os.truncate(tmp_path / "a.arrow", 20_000)
        with pytest.raises(InputError, match="a.arrow"):
            found.column("positive")


def test_a_recipe_takes_no_longer_than_its_size_explains(tmp_path):
    """A key of 32,000 dots took 13 seconds."""
    path = tmp_path / "cocos.toml"
    path.write_text("a" + ".a" * 32_000 + "=1")
    with pytest.raises(InputError, match="expected a TOML file of at most"):
        recipes.read(path, inside=False)
    path.write_text("a" + ".a" * 8_000 + "=1")
    begun = time.process_time()
    with pytest.raises(InputError, match="cocos.toml"):
        recipes.read(path, inside=False)
    assert time.process_time() - begun < MOST_CPU


def test_a_folder_of_many_models_takes_time_in_their_number(tmp_path):
    """9,900 empty models, an archive of 2.3 MB, took 38 seconds."""
    with zipfile.ZipFile(tmp_path / "many.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for place in range(9900):
            archive.writestr(f"run/step_{place}/config.json", "{}")
            archive.writestr(f"run/step_{place}/model.safetensors", "")
    assert "1000 checkpoints" in opened(tmp_path / "many.zip").stdout
