"""Small models trained with the libraries themselves, saved as their users save them, opened and counted.

No code of the user for the first three, two short functions for plain PyTorch. The extra `trained` has the libraries.
"""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import cocos
from cocos.base.errors import InputError
from cocos.checkpoints.formats._trunks import ResNet

CLASSES, EACH, SIDE = 4, 8, 32
LABELS = np.arange(CLASSES * EACH) % CLASSES
SMALL = {"stem": 4, "num_blocks": [1, 1, 1, 1], "widths": [4, 6, 8, 10], "outputs": [4, 6, 8, 10], "bottleneck": False}
WORDS = "red green blue black white small large round square striped".split()
RECIPE = """
[model]
images = {resize = 32, mean = [0.0, 0.0, 0.0], std = [1.0, 1.0, 1.0]}
"""


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


def test_pytorch_metric_learning(tmp_path, pictures):
    """Trunk, embedder and loss, by the hook that its users give to a trainer; counted against the proxies."""
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, trainers
    from pytorch_metric_learning.utils import common_functions

    torch.manual_seed(0)
    images, labels = as_tensors(pictures)
    loss = losses.ProxyAnchorLoss(CLASSES, 5)
    models = {"trunk": ResNet(**SMALL), "embedder": nn.Linear(10, 5)}
    parts = models | {"metric_loss": loss}
    optimizers = {f"{name}_optimizer": torch.optim.Adam(each.parameters(), 1e-2) for name, each in parts.items()}

    def save(trainer):
        for saved in (trainer.models, trainer.loss_funcs, trainer.optimizers):
            common_functions.save_dict_of_models(saved, trainer.epoch, str(tmp_path))

    rows = [(image, int(label)) for image, label in zip(images, labels, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainers.MetricLossOnly(
            models, optimizers, 16, {"metric_loss": loss}, rows, iterations_per_epoch=2, dataloader_num_workers=0,
            end_of_epoch_hook=save, set_min_label_to_zero=False,
        ).train(num_epochs=2)  # fmt: skip
    (tmp_path / "cocos.toml").write_text(RECIPE)

    checkpoint = cocos.open(tmp_path, data=pictures)
    assert checkpoint.contents["loss to begin with"] == "proxynca"
    found = counted(checkpoint)
    for model in models.values():
        model.eval()
    with torch.no_grad():
        expected = models["embedder"](models["trunk"](images))
    same(found.query, expected)
    same(found.candidate, loss.proxies)
    (tmp_path / "cocos.toml").write_text(RECIPE.replace("resize = 32", "crop = 32"))
    with pytest.raises(InputError, match="crop 32"):
        cocos.open(tmp_path, data=pictures).embed()
    assert found.directions == ("s2p",)


def test_lightning(tmp_path, pictures):
    """The file of a Trainer, whose hyperparameters name the loss."""
    lightning = pytest.importorskip("lightning")

    class Pictures(lightning.LightningModule):
        def __init__(self, temperature=0.1, loss="ntxent"):
            super().__init__()
            self.save_hyperparameters()
            self.backbone, self.head = ResNet(**SMALL), nn.Linear(10, 5)

        def forward(self, images):
            return normalize(self.head(self.backbone(images)))

        def training_step(self, batch, number):
            first, second = self(batch[0]), self(batch[0] + 0.05 * torch.randn_like(batch[0]))
            return cross_entropy(first @ second.T / self.hparams.temperature, torch.arange(len(first)))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-2)

    torch.manual_seed(0)
    images, labels = as_tensors(pictures)
    model = Pictures()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), 16)
        lightning.Trainer(
            max_epochs=2, default_root_dir=tmp_path, logger=False, accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False,
        ).fit(model, batches)  # fmt: skip
    (path,) = tmp_path.rglob("*.ckpt")
    path.with_name("cocos.toml").write_text(RECIPE)

    checkpoint = cocos.open(path, data=pictures)
    found = counted(checkpoint)
    model.eval()
    with torch.no_grad():
        same(normalize(found.query), model(images))
    assert checkpoint.loss()[0] == cocos.losses.load("ntxent", {"temperature": 0.1})


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
