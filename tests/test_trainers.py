"""The monitor in the trainers of other libraries: their numbers arrive, and their trainings stay as they are.

The extra `trained` has the libraries; what is absent is skipped.
"""

import copy
import functools
import json
import pickle
import random
import re
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import children
import cocos
from cocos.base.errors import InputError
from cocos.monitor import callbacks, detectors

LIBRARIES = ("lightning", "pytorch_lightning", "transformers", "sentence_transformers", "accelerate", "wandb")
WORDS = "red green blue black white small large round square striped".split()
BATCH = 8


class Contrast(nn.Module):
    """A CLIP loss with a learned scale, the module of a user."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, first, second):
        scores = self.scale.exp() * normalize(first) @ normalize(second).T
        target = torch.arange(len(first), device=first.device)
        return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2


def with_trainer():
    """The library transformers; its trainer needs accelerate, which an extra does not bring."""
    pytest.importorskip("accelerate")
    return pytest.importorskip("transformers")


def rows(number, width=6):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(number))


def scalars(folder):
    """Step and value of each scalar in the event files below a folder, by tag, as TensorBoard reads them."""
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = {}
    for path in sorted(Path(folder).rglob("events.out.tfevents.*")):
        events = module.EventAccumulator(str(path)).Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend((each.step, each.value) for each in events.Scalars(tag))
    return found


def steps_of(monitor):
    return [record["step"] for record in monitor.records]


def same_weights(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(autouse=True)
def quiet():
    """Warnings of the libraries are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_libraries_are_imported_only_where_they_are_asked_for(fresh):
    code = (
        "import sys, torch, cocos; cocos.Monitor('ntxent').close(); "
        f"print([name for name in {LIBRARIES} if name in sys.modules])"
    )
    assert fresh(code).stdout.strip() == "[]"


# ---- Lightning


def lightning_training(folder, steps=10, *, callback=None, resume=None, accumulate=1, loss=Contrast, **options):
    lightning = pytest.importorskip("lightning.pytorch")

    class Towers(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.criterion = nn.Linear(6, 4), nn.Linear(6, 4), loss()

        def training_step(self, batch, number):
            return self.criterion(self.first(batch[0]), self.second(batch[0]))

        def validation_step(self, batch, number):
            self.log("validation", self.training_step(batch, number))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows(5 * BATCH)), BATCH)
    model = Towers()
    trainer = lightning.Trainer(
        max_steps=steps, default_root_dir=folder, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=accumulate,
        callbacks=[callback] if callback else None, **options,
    )  # fmt: skip
    trainer.fit(model, data, data, ckpt_path=resume)
    return model, trainer


def test_lightning(tmp_path):
    """Numbers at Lightning's own steps in its TensorBoard file; validation is silent; weights and files are as ever."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import TensorBoardLogger

    from cocos.monitor.lightning import MonitorCallback

    taken = []
    callback = MonitorCallback(every=5, store=tmp_path / "run.jsonl", log=lambda numbers, step: taken.append(step))
    logged = {"logger": TensorBoardLogger(tmp_path / "with"), "log_every_n_steps": 5}
    model, trainer = lightning_training(tmp_path / "with", callback=callback, **logged)
    plain, other = lightning_training(tmp_path / "without", logger=False)
    same_weights(plain.state_dict(), model.state_dict())

    assert steps_of(callback.monitor) == taken == [0, 4, 9]
    assert len(cocos.results.open(tmp_path / "run.jsonl")["step"]) == 3
    kept = scalars(tmp_path / "with")
    record = callback.monitor.records
    assert kept["cocos/relative"] == [
        (each["step"], pytest.approx(each["directions"]["q2c"]["relative"], rel=1e-6)) for each in record
    ]
    assert all(each["directions"]["q2c"]["candidates"] == BATCH for each in record)
    assert [step for step, _ in kept["validation"]] == [4, 9]
    assert not model.criterion._forward_hooks and not model.criterion._forward_pre_hooks
    files = [torch.load(next((tmp_path / each).rglob("*.ckpt")), weights_only=True) for each in ("with", "without")]
    assert files[0].keys() == files[1].keys()
    same_weights(files[0]["state_dict"], files[1]["state_dict"])
    assert len(files[0]["callbacks"]) == len(files[1]["callbacks"])


def test_lightning_resumes_and_accumulates(tmp_path):
    pytest.importorskip("lightning.pytorch")
    from cocos.monitor.lightning import MonitorCallback

    store = tmp_path / "run.jsonl"
    callback = MonitorCallback("criterion", every=2, store=store)
    lightning_training(tmp_path, 4, callback=callback, accumulate=2, logger=False)
    assert steps_of(callback.monitor) == [0, 1, 3]
    (path,) = tmp_path.rglob("*.ckpt")
    callback = MonitorCallback("criterion", every=2, store=store)
    lightning_training(tmp_path, 8, callback=callback, accumulate=2, logger=False, resume=path)
    assert steps_of(callback.monitor) == [4, 5, 7]
    assert cocos.results.open(store)["step"].values.tolist() == [0, 1, 3, 4, 5, 7]


def test_the_end_of_a_training_says_which_detectors_were_watching(tmp_path, caplog):
    pytest.importorskip("lightning")
    from cocos.monitor.lightning import MonitorCallback

    callback = MonitorCallback(every=2)
    lightning_training(tmp_path, 8, callback=callback, logger=False)
    end = caplog.messages[-1]
    watched = callback.monitor.watching()
    assert end.startswith("5 records: no detector fired; ") and end.endswith(detectors.summary(watched))
    assert watched["stuck"] == "begins at step 200" and "begins at step 200 (stuck)" in end
    assert watched["duplicates"] is None


def test_lightning_is_told_which_module_is_the_loss(tmp_path, caplog):
    pytest.importorskip("lightning.pytorch")
    from cocos.monitor.lightning import MonitorCallback

    class Two(Contrast):
        def __init__(self):
            super().__init__()
            self.inner = Contrast()

    towers = lightning_training(tmp_path, 1, logger=False)[0]
    assert callbacks.only(towers) is towers.criterion
    towers.val_loss = pytest.importorskip("torchmetrics").MeanMetric()
    assert callbacks.only(towers) is towers.criterion
    towers.second_loss = Contrast()
    with pytest.raises(InputError, match=r"Towers has several \(criterion, second_loss\); name one"):
        callbacks.only(towers)
    assert pickle.loads(pickle.dumps(MonitorCallback("criterion"))).monitor is None
    for loss, sentence in (("criterio", "'criterio' of Towers is NoneType"), (3, "int, expected a torch.nn.Module")):
        with pytest.raises(InputError, match=sentence):
            lightning_training(tmp_path, 1, callback=MonitorCallback(loss), logger=False)
    with pytest.raises(InputError, match="every: 0"):
        lightning_training(tmp_path, 1, callback=MonitorCallback(every=0), logger=False)
    callback = MonitorCallback("criterion.inner", every=1)
    lightning_training(tmp_path, 2, callback=callback, logger=False, loss=Two)
    assert callback.monitor.records == [] and "Contrast was not called in the 2 steps" in caplog.text


# ---- Hugging Face


class Towers(nn.Module):
    """A model whose forward pass has the loss, as those of Hugging Face have."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.contrast = nn.Linear(6, 4), nn.Linear(6, 4), Contrast()

    def forward(self, rows, return_loss=True):
        first, second = self.first(rows), self.second(rows)
        return {"loss": self.contrast(first, second), "first": first}


def trainer_of(folder, model, *, steps=8, data=None, collate=None, trainer=None, **options):
    transformers = with_trainer()
    arguments = {
        "output_dir": str(folder), "max_steps": steps, "per_device_train_batch_size": BATCH, "logging_steps": 4,
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_steps": 4, "learning_rate": 0.1,
        "optim": "sgd", "save_strategy": "no", "label_names": [],
    } | options  # fmt: skip
    data = [{"rows": row} for row in rows(5 * BATCH)] if data is None else data
    return (trainer or transformers.Trainer)(
        model=model, args=transformers.TrainingArguments(**arguments), train_dataset=data, eval_dataset=data,
        data_collator=collate,
    )  # fmt: skip


def hugging_face(folder, *, watched=None, resume=None, **options):
    """A training of the two towers, and what watched it."""
    torch.manual_seed(0)
    trainer = trainer_of(folder, Towers(), **options)
    found = watched(trainer) if watched else None
    trainer.train(resume_from_checkpoint=resume)
    return trainer, found


def test_hugging_face(tmp_path, capsys, caplog):
    """Numbers reach the reporters at the trainer's own steps; evaluation is silent; weights and files are as ever."""
    pytest.importorskip("tensorboard")
    with_trainer()
    from cocos.monitor.trainers import watch

    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 4}
    put = functools.partial(watch, every=4, store=tmp_path / "run.jsonl")
    trainer, found = hugging_face(tmp_path / "with", watched=put, report_to=["tensorboard"], **options)
    other, _ = hugging_face(tmp_path / "without", **options)
    same_weights(other.model.state_dict(), trainer.model.state_dict())

    assert steps_of(found.monitor) == [1, 4, 8]
    assert caplog.messages[-1] == f"3 records: no detector fired; {detectors.summary(found.watching())}"
    assert len(cocos.results.open(tmp_path / "run.jsonl")["step"]) == 3
    kept = scalars(tmp_path / "with")
    relative = [each["directions"]["q2c"]["relative"] for each in found.records]
    assert kept["train/cocos/relative"] == [
        (4, pytest.approx(relative[1])),
        (8, pytest.approx(relative[2])),
    ]
    assert kept["train/cocos/alarm"][-1] == (8, 0)
    assert [step for step, _ in kept["eval/loss"]] == [2, 4, 6, 8]
    printed = capsys.readouterr().out
    assert "'loss'" in printed and "cocos/" not in printed
    names = [{path.name for path in (tmp_path / each / "checkpoint-8").iterdir()} for each in ("with", "without")]
    assert names[0] == names[1]
    states = [
        json.loads((tmp_path / each / "checkpoint-8/trainer_state.json").read_text()) for each in ("with", "without")
    ]
    assert [each.keys() for each in states[0]["log_history"]] == [each.keys() for each in states[1]["log_history"]]
    found.close()
    found.close()
    assert found not in trainer.callback_handler.callbacks
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in trainer.model.modules())


def test_hugging_face_resumes_and_accumulates(tmp_path):
    with_trainer()
    from cocos.monitor.trainers import watch

    put = functools.partial(watch, every=2, store=tmp_path / "run.jsonl")
    options = {"save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": 2}
    _, found = hugging_face(tmp_path, watched=put, steps=4, **options)
    assert steps_of(found.monitor) == [1, 2, 4]
    _, found = hugging_face(tmp_path, watched=put, steps=8, resume=True, **options)
    assert steps_of(found.monitor) == [5, 6, 8]
    assert cocos.results.open(tmp_path / "run.jsonl")["step"].values.tolist() == [1, 2, 4, 5, 6, 8]


def test_hugging_face_model_made_anew(tmp_path):
    """`model_init` makes a model for each training; the monitor follows it."""
    transformers = with_trainer()
    from cocos.monitor.trainers import watch

    made = functools.partial(transformers.Trainer, model_init=Towers)
    trainer = trainer_of(tmp_path, None, trainer=lambda model, **others: made(**others))
    first = trainer.model
    with watch(trainer, every=4) as found:
        trainer.train()
    assert trainer.model is not first and steps_of(found.monitor) == [1, 4, 8]


def test_hugging_face_loss_of_a_trainer_of_ones_own(tmp_path, caplog):
    """A module beside the model, by its attribute; and a word where nothing is seen."""
    transformers = with_trainer()
    from cocos.monitor.trainers import watch

    class Own(transformers.Trainer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.criterion = Contrast()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            first = model(inputs["rows"])
            return self.criterion(first, 2 * inputs["rows"][:, :4])

    for loss, number in ((None, 3), ("criterion", 3), (Contrast(), 0)):
        trainer = trainer_of(tmp_path, nn.Linear(6, 4), trainer=Own, remove_unused_columns=False)
        caplog.clear()
        with watch(trainer, every=4, loss=loss) as found:
            trainer.train()
        assert len(found.records) == number
        assert ("watch(trainer, loss=module)" in caplog.text) == (number == 0)


@pytest.mark.parametrize(
    "options", [{"bf16": True}, {"torch_compile": True, "torch_compile_backend": "eager"}], ids=str
)
def test_hugging_face_half_precision_and_compilation(options, tmp_path, caplog):
    """Scores in bfloat16 are read; a compiled forward pass is left alone, and a warning says so."""
    with_trainer()
    from cocos.monitor.trainers import watch

    trainer, found = hugging_face(tmp_path / "with", watched=watch, **options)
    plain, _ = hugging_face(tmp_path / "without", **options)
    same_weights(plain.model.state_dict(), trainer.model.state_dict())
    if "bf16" in options:
        assert {each["dtype"] for each in found.records} == {"bfloat16"}
    else:
        assert not found.records and "only within a compiled forward pass" in caplog.text


def test_hugging_face_input_that_cannot_be_used(tmp_path):
    with_trainer()
    from cocos.monitor.trainers import watch

    trainer = trainer_of(tmp_path, Towers())
    before = list(trainer.callback_handler.callbacks)
    for arguments, sentence in (
        ({"trainer": nn.Linear(1, 1)}, "Linear, expected a transformers.Trainer"),
        ({"trainer": trainer, "every": 0}, "every: 0"),
        ({"trainer": trainer, "loss": "criterion"}, "'criterion' of Trainer is NoneType"),
        ({"trainer": trainer, "log": 3}, "log: int"),
    ):
        with pytest.raises(InputError, match=sentence):
            watch(**arguments)
    assert trainer.callback_handler.callbacks == before


def test_hugging_face_clip(tmp_path):
    """The library's own CLIP, whose forward pass has the loss among many other products."""
    transformers = with_trainer()
    from cocos.monitor.trainers import watch

    tower = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    text = tower | {"vocab_size": 40, "max_position_embeddings": 6, "eos_token_id": 1, "bos_token_id": 2}
    images = tower | {"image_size": 8, "patch_size": 4}
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=images, projection_dim=12))
    data = [{"pixel_values": torch.randn(3, 8, 8), "input_ids": torch.randint(3, 40, (6,))} for _ in range(BATCH)]

    def collate(items):
        return {name: torch.stack([each[name] for each in items]) for name in items[0]} | {"return_loss": True}

    trainer = trainer_of(tmp_path, model, data=data, collate=collate, steps=2, learning_rate=0.0)
    with watch(trainer, every=1) as found:
        trainer.train()
    assert steps_of(found.monitor) == [1, 2]
    inputs = collate(data)
    with torch.no_grad():
        outputs = model(**inputs)
    for name, vectors in (("q2c", outputs.text_embeds), ("c2q", outputs.image_embeds)):
        other = outputs.image_embeds if name == "q2c" else outputs.text_embeds
        with cocos.Monitor(cocos.losses.load("ntxent", {"temperature": 1 / model.logit_scale.exp().item()})) as named:
            named(vectors, other)
        expected = named.records[0]["directions"]["q2c"]["effective"]
        assert found.records[0]["directions"][name]["effective"] == pytest.approx(expected, rel=1e-4)


# ---- sentence-transformers


@pytest.fixture
def sentences(tmp_path):
    """Makes a model of averaged word vectors, or with `layers` a small BERT; and pairs of texts."""
    library, transformers = map(pytest.importorskip, ("sentence_transformers", "transformers"))
    datasets, tokenizers = map(pytest.importorskip, ("datasets", "tokenizers"))
    from sentence_transformers.models import Pooling, StaticEmbedding, Transformer

    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()

    def make(layers=0):
        torch.manual_seed(0)
        modules = [StaticEmbedding(tokenizer, embedding_dim=16)]
        if layers:
            names = {"tokenizer_object": tokenizer, "pad_token": "[PAD]", "unk_token": "[UNK]"}
            transformers.PreTrainedTokenizerFast(**names).save_pretrained(tmp_path / "base")
            config = transformers.BertConfig(
                vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=layers, num_attention_heads=2,
                intermediate_size=16,
            )  # fmt: skip
            transformers.BertModel(config).save_pretrained(tmp_path / "base")
            modules = [Transformer(str(tmp_path / "base")), Pooling(16, "mean")]
        return library.SentenceTransformer(modules=modules, device="cpu")

    drawn = random.Random(0)
    pairs = [{name: " ".join(drawn.sample(WORDS, 4)) for name in ("anchor", "positive")} for _ in range(5 * BATCH)]
    return make, datasets.Dataset.from_list(pairs)


def sentence_trainer(folder, model, loss, data, *, steps=8, **options):
    library = pytest.importorskip("sentence_transformers")
    arguments = {
        "output_dir": str(folder), "max_steps": steps, "per_device_train_batch_size": BATCH, "logging_steps": 4,
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, "learning_rate": 0.1, "optim": "sgd",
        "save_strategy": "no",
    } | options  # fmt: skip
    return library.SentenceTransformerTrainer(
        model=model, args=library.SentenceTransformerTrainingArguments(**arguments), train_dataset=data,
        eval_dataset=data, loss=loss,
    )  # fmt: skip


def test_sentence_transformers(tmp_path, sentences):
    """Numbers reach TensorBoard; evaluation is silent; weights and the saved model are as ever; a run resumes."""
    pytest.importorskip("tensorboard")
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    from cocos.monitor.trainers import watch

    make, data = sentences
    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 4}
    store = tmp_path / "run.jsonl"

    def train(place, **others):
        model = make()
        trainer = sentence_trainer(
            tmp_path / place, model, MultipleNegativesRankingLoss(model), data, **options | others
        )
        with watch(trainer, every=4, store=store) if place == "with" else nullcontext() as found:
            trainer.train(resume_from_checkpoint="steps" in others)
        return model, found

    model, found = train("with", report_to=["tensorboard"])
    same_weights(train("without")[0].state_dict(), model.state_dict())
    assert steps_of(found.monitor) == [1, 4, 8]
    assert {each["width"] for each in found.records} == {16}
    kept = scalars(tmp_path / "with")
    assert [step for step, _ in kept["train/cocos/relative"]] == [4, 8]
    assert [step for step, _ in kept["eval/loss"]] == [2, 4, 6, 8]
    saved = [{path.name for path in (tmp_path / each / "checkpoint-8").iterdir()} for each in ("with", "without")]
    assert saved[0] == saved[1]
    assert steps_of(train("with", steps=12)[1].monitor) == [9, 12]
    assert cocos.results.open(store)["step"].values.tolist() == [1, 4, 8, 9, 12]


def test_sentence_transformers_losses_of_several_datasets(tmp_path, sentences):
    """A dict of losses: a monitor, a name and a store for each, also where two datasets share one."""
    pytest.importorskip("tensorboard")
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    from cocos.monitor.trainers import watch

    make, data = sentences
    model = make()
    shared = MultipleNegativesRankingLoss(model)
    losses = {"a": shared, "b": shared, "c": MultipleNegativesRankingLoss(model, scale=5.0)}
    data = {name: data.select(range(len(data))) for name in losses}
    options = {"report_to": ["tensorboard"], "multi_dataset_batch_sampler": "round_robin"}
    trainer = sentence_trainer(tmp_path, model, losses, data, steps=12, **options)
    with watch(trainer, every=3, store=tmp_path / "run.jsonl") as found:
        trainer.train()
    assert list(found.monitors) == ["a+b", "c"]
    assert all(len(monitor.records) >= 3 for monitor in found.monitors.values())
    assert [each["step"] for each in found.records] == sorted(each["step"] for each in found.records)
    kept = scalars(tmp_path)
    assert {"train/cocos/a+b/relative", "train/cocos/c/relative"} <= set(kept)
    assert len(cocos.results.open(tmp_path / "run-c.jsonl")["step"]) == len(found.monitors["c"].records)
    with pytest.raises(InputError, match=r"use monitors\[name\]"):
        _ = found.monitor


PROCESSES = """
import sys, warnings
warnings.simplefilter("ignore")
import datasets
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from cocos.monitor.trainers import watch

model = SentenceTransformer(sys.argv[1], device="cpu")
loss = MultipleNegativesRankingLoss(model, gather_across_devices=True)
options = {"max_steps": 2, "per_device_train_batch_size": 8, "report_to": "none", "save_strategy": "no"}
arguments = SentenceTransformerTrainingArguments(sys.argv[2], ddp_backend="gloo", use_cpu=True, **options)
pairs = datasets.load_from_disk(sys.argv[3])
trainer = SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss)
with watch(trainer, every=1) as found:
    trainer.train()
for each in found.records:
    numbers = each["directions"]["q2c"]
    sizes = numbers["queries"], numbers["candidates"]
    print("record", each["world"], each["gathered"], *sizes, 0 < numbers["push_own"] < 1)
"""


def test_sentence_transformers_in_two_processes(tmp_path, sentences):
    """Candidates are gathered from both processes, own and others' are told apart, and one process records."""
    make, data = sentences
    make().save_pretrained(str(tmp_path / "model"))
    data.save_to_disk(str(tmp_path / "pairs"))
    (tmp_path / "train.py").write_text(PROCESSES)
    done = children.run(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", tmp_path / "train.py",
        *(tmp_path / name for name in ("model", "out", "pairs")),
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if line.startswith("record")]
    assert found == ["record 2 True 8 16 True"] * 2, done.stderr


@pytest.mark.parametrize("kind", ["cached", "matryoshka"])
def test_sentence_transformers_losses_that_wrap_others(kind, tmp_path, sentences):
    """A cached loss is one matrix of all its tiles; one of several widths gives a record for each."""
    from sentence_transformers import losses

    from cocos.monitor.trainers import watch

    make, data = sentences
    model = make(layers=1)
    loss = {
        "cached": lambda: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2),
        "matryoshka": lambda: losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [16, 4]),
    }[kind]()
    trainer = sentence_trainer(tmp_path, model, loss, data, steps=4, gradient_accumulation_steps=2)
    with watch(trainer, every=2) as found:
        trainer.train()
    widths = [16] if kind == "cached" else [16, 4]
    assert [(each["step"], each["width"]) for each in found.records] == [
        (step, width) for step in (1, 2, 4) for width in widths
    ]
    assert all(each["directions"]["q2c"]["queries"] == BATCH for each in found.records)
    assert all(each["directions"]["q2c"]["candidates"] == BATCH for each in found.records)


# ---- loops of one's own


def test_wrapped_modules(tmp_path):
    """A loss in DistributedDataParallel is read as the loss; copies and pickles of a watched module are silent."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        loss = torch.nn.parallel.DistributedDataParallel(Contrast())
        assert callbacks.unwrapped(torch.compile(loss)) is loss.module
        with cocos.Monitor(loss) as outside:
            loss(rows(BATCH), rows(BATCH + 1)[1:]).backward()
        assert outside.records[0]["directions"]["q2c"]["queries"] == BATCH
        with cocos.Monitor(loss.module) as monitor:
            first, second = rows(BATCH).requires_grad_(), rows(BATCH + 1)[1:]
            loss(first, second).backward()
            for other in (copy.deepcopy(loss.module), pickle.loads(pickle.dumps(loss.module))):
                other(first, second).backward()
            assert len(monitor.records) == 1
            first.grad = None
            assert set(loss.module.state_dict()) == {"scale"}
            loss(first, second).backward()
            assert len(monitor.records) == 2
    finally:
        torch.distributed.destroy_process_group()


class Pair(nn.Module):
    """Two towers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, rows):
        return self.first(rows), self.second(rows)


def scope_of(library, request):
    """What a recipe of the page starts from: a model, its loss, an optimizer and data."""
    torch.manual_seed(0)
    model, loss = Pair(), Contrast()
    data = torch.utils.data.TensorDataset(rows(10 * BATCH), torch.arange(10 * BATCH) % 5)
    scope = {"model": model, "loss": loss, "loader": torch.utils.data.DataLoader(data, BATCH), "dataset": data}
    scope["optimizer"] = torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.1)
    if library == "torch":
        scope["train"] = lambda: [loss(*model(batch)).backward() for batch, _ in scope["loader"]]
    if library == "lightning.pytorch":
        scope["model"] = lightning_training(request.getfixturevalue("tmp_path"), 1, logger=False)[0]
    if library == "pytorch_metric_learning":
        scope["models"] = {"trunk": nn.Linear(6, 5), "embedder": nn.Linear(5, 4)}
        scope["optimizers"] = {
            f"{name}_optimizer": torch.optim.SGD(each.parameters(), 0.1) for name, each in scope["models"].items()
        }
    if library == "sentence_transformers":
        from sentence_transformers import SentenceTransformerTrainingArguments
        from sentence_transformers.losses import MultipleNegativesRankingLoss

        make, scope["pairs"] = request.getfixturevalue("sentences")
        scope["model"] = make()
        scope["loss"] = MultipleNegativesRankingLoss(scope["model"])
        scope["args"] = SentenceTransformerTrainingArguments("out", max_steps=2, report_to="none", use_cpu=True)
    return scope


PAGE = Path(__file__).parent.parent / "docs" / "howto" / "trainers.md"
RECIPES = {
    re.findall(r"from ([a-z_]+(?:\.(?:pytorch|fabric))?)", text)[0]: text
    for text in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
}


@pytest.mark.parametrize("library", RECIPES)
def test_recipes_of_the_page_run(library, tmp_path, monkeypatch, request):
    """Each recipe for a library, as it is written in docs/howto/trainers.md, records something."""
    pytest.importorskip("tensorboard" if library == "torch" else library)
    monkeypatch.chdir(tmp_path)
    scope = scope_of(library, request)
    exec(compile(RECIPES[library], str(PAGE), "exec"), scope)
    if library == "lightning.pytorch":
        scope["monitor"] = next(each.monitor for each in scope["trainer"].callbacks if hasattr(each, "monitor"))
    if library == "torch":
        assert scalars("runs/plain")["cocos/relative"][0][0] == 0
    else:
        assert scope.get("monitor", scope.get("watched")).records
