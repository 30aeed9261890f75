"""Small models trained with the libraries themselves, saved as their users save them, opened and counted.

No code of the user for sentence-transformers, two short functions for plain PyTorch. The extra `trained` has the
libraries.
"""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

import cocos
from cocos.base.errors import InputError

CLASSES, EACH, SIDE = 4, 8, 32
LABELS = np.arange(CLASSES * EACH) % CLASSES
WORDS = "red green blue black white small large round square striped".split()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A file of images by class: noise around a colour for each class."""
    random = np.random.default_rng(0)
    colors = random.uniform(60, 200, (CLASSES, 1, 1, 3))
    images = (colors[LABELS] + random.normal(0, 20, (len(LABELS), SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)
    path = tmp_path_factory.mktemp("pictures") / "train.npz"
    np.savez(path, images=images, labels=LABELS)
    return path


def as_tensors(path):
    data = np.load(path)
    return torch.from_numpy(data["images"]).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(data["labels"])


def counted(checkpoint):
    """The vectors of a checkpoint, and counts under the loss it starts from."""
    embeddings = checkpoint.embed()
    data = cocos.measures.count(embeddings, checkpoint.loss()[0], batch_size=len(LABELS), batches=1)
    assert np.isfinite(data["contributing"]).all() and (data["contributing"] > 0).any()
    return embeddings


def same(found, expected):
    torch.testing.assert_close(found.double(), expected.detach().double(), rtol=0, atol=2e-6)


def test_sentence_transformers(tmp_path):
    """The folders of a Trainer and of `save_pretrained`, counted at the scale of the loss it was trained with."""
    library = pytest.importorskip("sentence_transformers")
    datasets, tokenizers, transformers = map(pytest.importorskip, ("datasets", "tokenizers", "transformers"))

    random = np.random.default_rng(0)
    orders = np.array([random.permutation(WORDS) for _ in LABELS])
    pairs = [{"anchor": " ".join(order[:6]), "positive": " ".join(order[::-1])} for order in orders]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate(specials + WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), specials, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(tmp_path / "base")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers.losses import MultipleNegativesRankingLoss
        from sentence_transformers.models import Normalize, Pooling, Transformer

        model = library.SentenceTransformer(
            modules=[Transformer(str(tmp_path / "base")), Pooling(16, "mean"), Normalize()], device="cpu"
        )
        library.SentenceTransformerTrainer(
            model=model,
            args=library.SentenceTransformerTrainingArguments(
                output_dir=str(tmp_path / "run"), max_steps=4, save_steps=2, per_device_train_batch_size=16,
                learning_rate=1e-2, report_to="none", use_cpu=True, disable_tqdm=True,
            ),
            train_dataset=datasets.Dataset.from_list(pairs),
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
        ).train()  # fmt: skip
        model.save_pretrained(str(tmp_path / "final"))
    data = tmp_path / "pairs.jsonl"
    data.write_text("\n".join(map(json.dumps, pairs)))

    with pytest.raises(InputError, match="run/checkpoint-4;"):
        cocos.open(tmp_path / "run", data=data)
    found = {}
    for place in ("run/checkpoint-2", "run/checkpoint-4", "final"):
        checkpoint = cocos.open(tmp_path / place, data=data)
        assert checkpoint.loss()[0] == cocos.losses.load("ntxent", {"temperature": 1 / 20})
        found[place] = counted(checkpoint).query
    torch.testing.assert_close(found["run/checkpoint-4"], found["final"])
    assert not torch.equal(found["run/checkpoint-2"], found["final"])
    expected = model.encode([pair["anchor"] for pair in pairs], convert_to_tensor=True)
    same(found["final"], expected)


class Net(nn.Module):
    """A network that cocos does not know."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 7, 5))

    def forward(self, images):
        return normalize(self.layers(images))


def build(content):
    """User code, 1 of 2: the architecture, and where its weights are."""
    net = Net()
    net.load_state_dict(content["model"])
    return lambda images: net(images.float() / 255)


def load(pictures):
    """User code, 2 of 2: the training data."""
    data = np.load(pictures)
    return {"items": data["images"].transpose(0, 3, 1, 2), "labels": data["labels"]}


def test_plain_pytorch(tmp_path, pictures):
    """A loop of one's own and `torch.save`."""
    torch.manual_seed(0)
    images, labels = as_tensors(pictures)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        vectors = net(images)
        scores = (vectors @ vectors.T / 0.1).fill_diagonal_(-torch.inf)
        positive = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
        loss = (scores.logsumexp(1) - scores.masked_fill(~positive, -torch.inf).logsumexp(1)).mean()
        loss.backward()
        optimizer.step()
    path = tmp_path / "epoch_4.pt"
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 4}, path)

    found = counted(cocos.open(path, model=build, data=lambda split: load(pictures)))
    same(found.query, net(images))
