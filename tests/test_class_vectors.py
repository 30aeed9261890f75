"""Class weights and proxies are counted with no backbone: files of losses, shards of a softmax, other state dicts."""

import json
import os
import pickle
import zipfile

import numpy
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, UnsafeFile
from cocos.checkpoints import formats
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import class_vectors
from cocos.cli import app


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROWS, COLUMNS = drawn(30, 8), drawn(8, 30)
UNIT = COLUMNS / COLUMNS.norm(dim=0)
# name: content, format, vectors as rows, loss of the training; parameters of pytorch-metric-learning 2.9
FILES = {
    "ArcFaceLoss": ({"W": COLUMNS}, "class_vectors", COLUMNS.T, None),
    "ProxyAnchorLoss": ({"proxies": ROWS}, "class_vectors", ROWS, None),
    "SoftTripleLoss": ({"fc": COLUMNS}, "class_vectors", COLUMNS.T, "softtriple"),
    "wrapped": ({"module.loss.W": COLUMNS}, "class_vectors", COLUMNS.T, None),
    "MultipleLosses": ({"losses.0.beta": drawn(3), "losses.1.W": COLUMNS}, "class_vectors", COLUMNS.T, None),
    "partial FC": ({"weight": ROWS}, "class_vectors", ROWS, None),
    "WarpNet": ({"Proxies": ROWS}, "class_vectors", ROWS, "warped_softmax"),
    "metric_loss_fn": (
        {"a.weight": drawn(4, 4), "classifier.weight": drawn(30, 8, seed=1), "metric_loss_fn.proxies": ROWS},
        "class_vectors",
        ROWS,
        None,
    ),
    "Lightning": ({"state_dict": {"net.0.weight": ROWS, "loss_fn.W": COLUMNS}}, "class_vectors", COLUMNS.T, None),
    "classifier": ({"model": {"module.head.fc.weight": ROWS, "module.fc.bias": ROWS[0]}}, "class_vectors", ROWS, None),
    "center loss": ({"centers": ROWS}, "class_vectors", ROWS, None),
}  # fmt: skip


NAMES = {"partial FC": "softmax_fc_gpu_0.pt"}


def saved(path, content):
    torch.save(content, path)
    return path


def written(folder, name):
    return saved(folder / NAMES.get(name, "loss.pth"), FILES[name][0])


@pytest.mark.parametrize("name", FILES)
def test_class_vectors_are_counted(tmp_path, name):
    _, format, rows, trained_with = FILES[name]
    found = cocos.open(written(tmp_path, name))
    assert (found.format, found.settings.loss) == (format, trained_with)
    embeddings = found.embed(device="cpu")
    assert embeddings.directions == ("s2p",) and torch.equal(embeddings.query, rows)
    assert torch.equal(embeddings.candidate, rows) and torch.equal(embeddings.query_group, embeddings.candidate_group)
    classes = 3 if name == "SoftTripleLoss" else 30
    assert len(embeddings.query_group.unique()) == classes
    assert any("no samples" in note for note in found.notes)
    cocos.measures.count(found, cocos.losses.load(trained_with or "normalized_softmax"))


def test_count_notes_missing_samples(tmp_path):
    path = saved(tmp_path / "metric_loss_best3.pth", {"W": COLUMNS})
    done = CliRunner().invoke(app, ["count", str(path), "--loss", "cosface", "--json"])
    assert json.loads(done.stdout)["checkpoint"]["format"] == "class_vectors" and "no samples" in done.stderr
    safetensors.torch.save_file({"W": COLUMNS.clone()}, tmp_path / "a.safetensors")
    assert torch.equal(cocos.open(tmp_path / "a.safetensors").embed(device="cpu").query, COLUMNS.T)


def test_proxies_precede_class_weights(tmp_path):
    found = cocos.open(saved(tmp_path / "a.ckpt", FILES["metric_loss_fn"][0]))
    assert found.loss()[0].name == "proxynca"


@pytest.mark.parametrize("prefix", ["", "Follow-"])
def test_ranks_are_joined_in_order(tmp_path, prefix):
    parts = [torch.full((3 - (rank > 1), 4), float(rank)) for rank in range(11)]
    for rank, part in enumerate(parts):
        saved(tmp_path / f"{prefix}softmax_fc_gpu_{rank}.pt", {"weight": part})
        saved(tmp_path / f"Other-softmax_fc_gpu_{rank}.pt", {"weight": drawn(7, 4)})
    found = cocos.open(tmp_path / f"{prefix}softmax_fc_gpu_7.pt")
    assert torch.equal(found.embed(device="cpu").query, torch.cat(parts))
    assert torch.equal(class_vectors.join_ranks(tmp_path, prefix), torch.cat(parts))
    assert class_vectors.join_ranks(tmp_path, "None-") is None


def test_missing_or_wrong_rank_is_named(tmp_path):
    first = saved(tmp_path / "softmax_fc_gpu_0.pt", {"weight": drawn(3, 4)})
    other = saved(tmp_path / "softmax_fc_gpu_2.pt", {"weight": drawn(3, 4)})
    with pytest.raises(InputError, match=r"softmax_fc_gpu_1\.pt: file not found"):
        cocos.open(first)
    other.rename(tmp_path / "softmax_fc_gpu_1.pt")
    assert len(cocos.open(first).embed(device="cpu").query) == 6
    for wrong in ({"weight": drawn(3, 5)}, {"bias": drawn(3)}):
        with pytest.raises(InputError, match=r"softmax_fc_gpu_1\.pt: expected class weights"):
            cocos.open(saved(tmp_path / "softmax_fc_gpu_1.pt", wrong) and first)
    with pytest.raises(UnsafeFile, match=r"softmax_fc_gpu_1\.pt is refused as unsafe"):
        cocos.open(planted(tmp_path / "softmax_fc_gpu_1.pt", {"weight": drawn(3, 4)}) and first)


@pytest.mark.parametrize(
    "content",
    [
        {"beta": torch.tensor(1.2)},  # MarginLoss
        {"weight": drawn(30, 8), "bias": drawn(30)},
        {"weight": drawn(30, 8)},  # of any layer: no rank in the name of the file
        {"weight": drawn(4, 3, 3, 3)},
        {"weight": torch.arange(12).reshape(3, 4)},
        {"W": drawn(1, 30)},
        {"fc": drawn(8, 25)},  # SoftTripleLoss has 10 centers for each class
        {"projection_head.2.weight": drawn(30, 8)},
        {"head.weight": drawn(30, 8)},
        {"classifier.weight": drawn(2, 30)},
        {"linear.weight": drawn(8, 8)},
        {"Proxies": [1, 2]},
        {"optimizer": {"proxies": ROWS}},
        {"query": ROWS, "W": COLUMNS},
    ],
    ids=lambda content: next(iter(content)),
)
def test_other_matrices_are_not_class_vectors(tmp_path, content):
    file = File(saved(tmp_path / "loss.pth", content))
    found = formats.find(file)
    assert found is None or found.__name__.endswith(".embeddings")


class Planted:
    def __reduce__(self):
        return os.system, ("touch ran",)


def planted(path, content):
    """The file with an object that runs a command when it is loaded the unsafe way."""
    torch.save(content, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in members.items():
            both = raw[:2] + b"(" + pickle.dumps(Planted(), 2)[2:-1] + raw[2:-1] + b"t."
            archive.writestr(name, both if name.endswith("data.pkl") else raw)
    return path


OTHER_NAMES = {
    "clip": ({"image_features": ROWS, "text_features": UNIT.T}, ("i2t", "t2i")),
    "triples": ({"anchor": ROWS, "positive": UNIT.T, "negative": ROWS}, ("q2c", "c2q")),
    "query and passage": ({"query": ROWS, "passage": UNIT.T}, ("q2c", "c2q")),
    "features": ({"features": ROWS, "targets": torch.arange(30) % 3}, ("s2s",)),
    "listed labels": ({"embeddings": ROWS, "label": ["a", "b"] * 15}, ("s2s",)),
    "proxies": ({"x": ROWS, "y": torch.arange(30) % 3, "proxies": drawn(3, 8)}, ("s2p",)),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_embeddings_with_other_names_are_read(tmp_path, name):
    content, directions = OTHER_NAMES[name]
    found = cocos.open(saved(tmp_path / "a.pt", content))
    embeddings = found.embed(device="cpu")
    assert (found.format, embeddings.directions) == ("embeddings", directions)
    assert torch.equal(embeddings.query, ROWS)
    others = [key for key in content if key not in {"query", "embeddings", "negative", "proxies"}]
    assert all(any(f"{key} is read as " in note for note in found.notes) for key in others)
    if all(isinstance(value, torch.Tensor) for value in content.values()):
        numpy.savez(tmp_path / "a.npz", **{key: value.numpy() for key, value in content.items()})
        assert cocos.open(tmp_path / "a.npz").embed(device="cpu").directions == directions


@pytest.mark.parametrize(
    "content",
    [
        {"image_features": ROWS, "text_features": drawn(20, 8)},
        {"features": ROWS, "labels": torch.arange(29)},
        {"features": ROWS},
        {"features": drawn(30), "labels": torch.arange(30)},
    ],
)
def test_other_names_with_wrong_shapes_are_refused(tmp_path, content):
    assert formats.find(File(saved(tmp_path / "a.pt", content))) is None


PROXY_LOSSES = ("proxynca", "proxy_anchor", "arcface", "softtriple", "normalized_softmax", "warped_softmax")


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_proxy_loss_on_samples_alone_is_refused(tmp_path, loss):
    labels = torch.arange(30) % 3
    numpy.savez(tmp_path / "a.npz", embeddings=ROWS.numpy(), labels=labels.numpy())
    done = CliRunner().invoke(app, ["count", str(tmp_path / "a.npz"), "--loss", loss])
    assert (done.exit_code, done.stdout) == (2, "") and "proxies=" in done.stderr and "--model" in done.stderr
    with pytest.raises(InputError):
        cocos.count(cocos.open(tmp_path / "a.npz"), cocos.losses.load(loss))
    numpy.savez(tmp_path / "b.npz", embeddings=ROWS.numpy(), labels=labels.numpy(), proxies=drawn(3, 8).numpy())
    assert CliRunner().invoke(app, ["count", str(tmp_path / "b.npz"), "--loss", loss]).exit_code == 0


def test_class_vectors_alone_have_no_verdict(tmp_path):
    path = saved(tmp_path / "loss.pth", {"proxies": ROWS})
    numpy.savez(
        tmp_path / "a.npz",
        embeddings=ROWS.numpy(),
        labels=numpy.arange(30),
        proxies=ROWS.numpy() + 0.3 * drawn(30, 8, seed=1).numpy(),
    )
    for file, verdict in ((path, False), (tmp_path / "a.npz", True)):
        done = CliRunner().invoke(app, ["count", str(file), "--loss", "proxynca", "--json"])
        document = json.loads(done.stdout)
        kinds = {finding["kind"] for finding in document["findings"]}
        assert bool(kinds & cocos.counting.findings.GRADIENTS.keys()) == verdict
        assert document["directions"]["s2p"]["effective"]["mean"] > 0


def proxy_anchor_positives(samples, labels, proxies, alpha=32, margin=0.1):
    """Count the negatives of Kim et al. 2020, eq. 4, with a share above 1 %, in a slow loop over the classes."""
    rows = torch.nn.functional.normalize(samples.double(), dim=1)
    columns = torch.nn.functional.normalize(proxies.double(), dim=1).requires_grad_()
    scores = (rows @ columns.T).detach().requires_grad_()
    loss = 0.0
    for column in range(len(proxies)):
        negatives = scores[labels != column, column]
        loss = loss + torch.log1p(torch.exp(alpha * (negatives + margin)).sum()) / len(proxies)
    (weights,) = torch.autograd.grad(loss, scores)
    return (weights * len(proxies) / alpha > 0.01).sum(1).double().mean().item()


def test_proxies_of_a_checkpoint_are_counted_with_samples(tmp_path):
    labels, samples, proxies = torch.arange(30) % 3, drawn(30, 8, seed=2), drawn(3, 8, seed=3)
    path = saved(tmp_path / "a.pt", {"model": {"linear.weight": torch.eye(8)}, "loss": {"proxies": proxies}})
    found = cocos.open(path, model=lambda content: torch.nn.Identity(), data=lambda split: {
        "items": samples, "labels": labels
    })  # fmt: skip
    dataset = cocos.count(found, cocos.losses.load("proxy_anchor"), batch_size="all")
    assert dataset.direction.values.tolist() == ["s2p"]
    assert float(dataset["contributing"].mean()) == pytest.approx(proxy_anchor_positives(samples, labels, proxies))


def test_proxies_that_do_not_fit_are_left_out(tmp_path):
    path = saved(tmp_path / "a.pt", {"loss": {"proxies": drawn(3, 5)}})
    found = cocos.open(path, model=lambda content: torch.nn.Identity(), data=lambda split: {
        "items": ROWS, "labels": torch.arange(30) % 5
    })  # fmt: skip
    assert found.embed(device="cpu").directions == ("s2s",)
