"""Loss settings that a checkpoint of any code records: each expected value is plain arithmetic on the stored one."""

import argparse
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos.checkpoints import model_card, recorded
from cocos.cli import app, options

LOG_100 = torch.tensor(math.log(100.0))
RANKING = "MultipleNegativesRankingLoss"
t = torch.tensor

# content of a file, and the temperature that its softmax was trained with (None: not recorded)
TEMPERATURES = {
    # learned, as a logarithm or an inverse, by name
    "logit_scale": ({"logit_scale": LOG_100}, 0.01),
    "wrapped": ({"state_dict": {"module.logit_scale": LOG_100}}, 0.01),
    "Lightning": ({"state_dict": {"model.clip.logit_scale": LOG_100}}, 0.01),
    "log_logit_scale": ({"log_logit_scale": LOG_100}, 0.01),
    "log_temperature": ({"state_dict": {"criterion.log_temperature": -LOG_100}}, 0.01),
    "log_tau": ({"state_dict": {"loss.log_tau": -LOG_100}}, 0.01),
    "inv_tau": ({"state_dict": {"inv_tau": t(20.0)}}, 0.05),
    "inverse_temperature": ({"model": {"inverse_temperature": t([20.0])}}, 0.05),
    "log_inv_temp": ({"model": {"log_inv_temp": LOG_100}}, 0.01),
    "temp of BLIP": ({"model": {"temp": t(0.05)}, "config": {"temp": 0.07}}, 0.05),
    "t_prime of SigLIP": ({"criterion": {"t_prime": t(math.log(10.0))}}, 0.1),
    "GE2E": ({"similarity_weight": 10.0, "similarity_bias": -5.0}, 0.1),
    "two scales of CLAP": ({"logit_scale_a": LOG_100, "logit_scale_t": LOG_100 - 0.1}, 0.01),
    # learned, by range
    "stored scale": ({"logit_scale": t(100.0)}, 0.01),
    "stored scale of 14.3": ({"logit_scale": t(14.3)}, 1 / 14.3),
    "negative temperature": ({"state_dict": {"temperature": -LOG_100}}, 0.01),
    "temperature as scale": ({"state_dict": {"temperature": t(20.0)}}, 0.05),
    "temperature of two readings": ({"state_dict": {"temperature": t(2.66)}}, None),
    "implausible": ({"logit_scale": t(600.0)}, None),
    # a learned value has precedence over a setting, and the model over its moving average
    "learned and set": ({"state_dict": {"loss_fn.logit_scale": LOG_100}, "args": {"temperature": 0.07}}, 0.01),
    "learned, loss named": ({"m": {"logit_scale": LOG_100}, "args": {"loss": "ntxent", "temperature": 0.07}}, 0.01),
    "moving average": ({"ema": {"logit_scale": LOG_100 + 1}, "model": {"logit_scale": LOG_100}}, 0.01),
    "teacher": ({"model": {"teacher.temp": t(0.04), "student.temp": t(0.1)}}, 0.1),
    "initial value": ({"model": {"logit_scale": LOG_100}, "args": {"init_temperature": 0.07}}, 0.01),
    # settings
    "Namespace": ({"args": argparse.Namespace(temperature=0.2, lr=1)}, 0.2),
    "moco_t": ({"args": argparse.Namespace(moco_t=0.2, moco_m=0.999)}, 0.2),
    "temp of SupContrast": ({"opt": argparse.Namespace(temp=0.07, method="SupCon")}, 0.07),
    "text": ({"hyper_parameters": {"temperature": "0.2"}}, 0.2),
    "number of NumPy": ({"hyper_parameters": {"temperature": np.float64(0.2)}}, 0.2),
    "nested settings": ({"hyper_parameters": {"config": {"temperature": 0.2}}}, 0.2),
    "block of Hydra": ({"cfg": {"loss": {"_target_": "lib.losses.NTXentLoss", "temperature": 0.05}}}, 0.05),
    "class path": ({"hparams": {"loss_fn": {"class_path": "a.InfoNCE", "init_args": {"tau": 0.05}}}}, 0.05),
    "kwargs": ({"hyper_parameters": {"loss": {"name": "NTXentLoss", "kwargs": {"temperature": 0.05}}}}, 0.05),
    "kwargs beside the name": ({"args": {"loss": "ntxent", "loss_kwargs": {"tau": 0.05}}}, 0.05),
    "criterion T": ({"hyper_parameters": {"criterion": {"name": "InfoNCE", "T": 0.07}}}, 0.07),
    "block by name": ({"config": {"infonce": {"tau": 0.07}}}, 0.07),
    "nested loss": ({"config": {"model": {"contrastive_loss": {"scale": 20}}}}, 0.05),
    "dotted key": ({"config": {"loss.temperature": 0.07}}, 0.07),
    "beside a loss": ({"args": {"tau": 0.2, "loss": "ntxent"}}, 0.2),
    "loss_temperature": ({"args": {"loss_temperature": 0.2, "tau": 0.99}}, 0.2),
    "unknown loss": ({"args": {"loss": "os:system", "temperature": 0.2}}, 0.2),
    "shallow first": ({"temperature": 0.2, "args": {"temperature": 0.3}}, 0.2),
    # other numbers of the same names
    "momentum": ({"hyper_parameters": {"tau": 0.996, "method": "byol"}}, None),
    "momentum beside a loss": ({"hyper_parameters": {"tau": 0.996, "loss": "infonce"}}, None),
    "time constant": ({"hyper_parameters": {"tau": 2000, "lr": 0.1}}, None),
    "tau alone": ({"hyper_parameters": {"tau": 0.2}}, None),
    "scale of an augmentation": ({"hyper_parameters": {"augment": {"scale": 0.08}}}, None),
    "range of an augmentation": ({"args": {"scale": [0.08, 1.0], "crop_scale": 0.2, "loss": "ntxent"}}, None),
    "scale alone": ({"args": {"scale": 0.5}}, None),
    "lora": ({"args": {"lora": {"scale": 2.0}}}, None),
    "generation": ({"config": {"generation": {"temperature": 0.7}}}, None),
    "settings of generation": ({"config": {"temperature": 0.7, "top_p": 0.9}}, None),
    "distillation": ({"config": {"distill": {"temperature": 1.5}, "loss": {"temperature": 0.07}}}, 0.07),
    "distillation loss": ({"config": {"distillation_loss": {"temperature": 1.5}}}, None),
    "initial value alone": ({"args": {"init_temperature": 0.07}}, None),
    "attention": ({"state_dict": {"layers.0.blocks.1.attn.logit_scale": t([2.3])}}, None),
    "layer scale": ({"state_dict": {"encoder.stage.scale": t([20.0])}}, None),
    "optimizer": ({"optimizer": {"temperature": t(0.07)}, "lr_schedulers": [{"scale": t(20.0)}]}, None),
    "loss scaler": ({"loss_scaler": {"scale": 256.0}, "MixedPrecision": {"scale": 128.0}}, None),
    "nested loss scaler": ({"args": {"loss_scaler": {"scale": 256.0}, "loss": "ntxent"}}, None),
    "weights of losses": ({"args": {"loss_weights": {"temperature": 0.5}}}, None),
    "named block in a block": ({"cfg": {"loss": {"ntxent": {"temperature": 0.07}, "weight": 2}}}, 0.07),
    "arguments of a criterion": ({"args": {"criterion": "infonce", "criterion_args": {"tau": 0.05}}}, 0.05),
    "schedule": ({"args": {"temperature": {"start": 0.2, "end": 0.05}}}, None),
    "quantiser": ({"state_dict": {"quantizer.temperature": t(0.5)}}, None),
    "no numbers": ({"temperature": True, "margin": float("nan"), "tau": -1, "scale": "large"}, None),
    "too large": ({"args": {"temperature": 20, "loss": "ntxent"}}, None),
}


@pytest.mark.parametrize("case", TEMPERATURES)
def test_recorded_temperature_is_right(case):
    content, temperature = TEMPERATURES[case]
    settings = recorded.read(content)
    value = settings.parameters.get("ntxent", {}).get("temperature")
    assert value == (temperature and pytest.approx(temperature, rel=1e-5))


# content of a file, and the loss and parameters that it records
LOSSES = {
    "triplet": ({"opt": {"margin": 0.3}}, None, {"triplet": {"margin": 0.3}, "triplet_sh": {"margin": 0.3}}),
    "nested margin": ({"opt": {"sampler": {"margin": 0.3}}}, None, {}),
    "ArcFace": (
        {"args": {"scale": 30.0, "margin": 0.5, "loss": "arcface"}},
        "arcface",
        {"arcface": {"scale": 30.0, "margin": 0.5}},
    ),
    "degrees of pytorch-metric-learning": (
        {"args": {"loss": "ArcFaceLoss", "margin": 28.6, "scale": 64}},
        "arcface",
        {"arcface": {"scale": 64.0, "margin": pytest.approx(28.6 * math.pi / 180, rel=1e-5)}},
    ),
    "short names": (
        {"config": {"arcface": {"s": 64, "m": 0.5}, "loss": "arcface"}},
        "arcface",
        {"arcface": {"scale": 64.0, "margin": 0.5}},
    ),
    "margin of a cosine": ({"args": {"loss": "CosFaceLoss", "margin": 28.6}}, "cosface", {}),
    "scale and margin without a loss": ({"args": {"scale": 30.0, "margin": 0.5}}, None, {}),
    "learned scale and margin": (
        {"state_dict": {"criterion.scale": t(20.0)}, "args": {"scale": 64.0, "margin": 0.5}},
        None,
        {name: {"scale": 20.0} for name in ("arcface", "cosface", "normalized_softmax")},
    ),
    "learned scale of a named loss": (
        {"state_dict": {"criterion.s": t(20.0)}, "args": {"scale": 64.0, "margin": 0.5, "loss": "arcface"}},
        "arcface",
        {"arcface": {"scale": 20.0, "margin": 0.5}},
    ),
    "SigLIP": (
        {"logit_scale": LOG_100, "logit_bias": t(-12.5)},
        "siglip",
        {"siglip": {"scale": 100.0, "bias": -12.5}, "ntxent": {"temperature": 0.01}, "supcon": {"temperature": 0.01}},
    ),
    "SigLIP of a criterion": (
        {"state_dict": {"criterion.t_prime": t(math.log(10.0)), "criterion.bias": t(-10.0)}},
        "siglip",
        {"siglip": {"scale": 10.0, "bias": -10.0}, "ntxent": {"temperature": 0.1}, "supcon": {"temperature": 0.1}},
    ),
    "block of a loss": (
        {"cfg": {"loss": {"name": "proxy_anchor", "alpha": 16, "margin": 0.2}}},
        "proxy_anchor",
        {"proxy_anchor": {"alpha": 16.0, "margin": 0.2}},
    ),
    "list of losses": (
        {"config": {"losses": [{"type": "SupConLoss", "temperature": 0.07}]}},
        "supcon",
        {"supcon": {"temperature": 0.07}},
    ),
    "margin elsewhere": ({"cfg": {"loss": "triplet", "miner": {"margin": 0.1}}}, "triplet", {}),
    "refused by the loss": ({"cfg": {"loss": {"name": "multi_similarity", "alpha": -2}}}, "multi_similarity", {}),
    "two losses": ({"cfg": {"loss": {"name": "triplet"}, "criterion": {"name": "arcface"}}}, None, {}),
}


@pytest.mark.parametrize("case", LOSSES)
def test_recorded_loss_takes_its_own_parameters(case):
    content, loss, parameters = LOSSES[case]
    settings = recorded.read(content)
    assert (settings.loss, settings.parameters) == (loss, parameters)


def test_disagreeing_values_are_both_shown():
    settings = recorded.read({"state_dict": {"logit_scale": LOG_100}, "args": {"temperature": 0.07, "tau": 0.996}})
    reasons = {one.source: one.reason for one in settings.candidates}
    assert len(settings.notes) == 1 and "100" in settings.notes[0] and "0.07" in settings.notes[0]
    assert not reasons["state_dict.logit_scale"] and reasons["args.temperature"] and reasons["args.tau"]
    assert not recorded.read({"state_dict": {"logit_scale": LOG_100}, "args": {"temperature": 0.01}}).notes


def test_tensors_and_arrays_of_files_are_read(tmp_path):
    rows = {"query": torch.eye(4), "candidate": torch.eye(4)}
    torch.save(rows | {"config": {"generation": {"temperature": 0.7}}}, tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", query=np.eye(4), candidate=np.eye(4), logit_scale=np.float32(math.log(100)))
    assert cocos.open(tmp_path / "a.pt").settings.parameters == {}
    assert cocos.open(tmp_path / "a.npz").loss("ntxent")[0].temperature == pytest.approx(0.01)


def card(*losses, batch_size=None):
    """Write a model card of sentence-transformers: a loss and its parameters for each data set."""
    header = "---\ntags:\n" + "".join(f"- loss:{name}\n" for name, _ in losses) + "---\n"
    blocks = [
        f"#### Data set\n* Loss: [<code>{name}</code>](https://sbert.net) with these parameters:\n"
        f"  ```json\n  {{\n      {parameters}\n  }}\n  ```\n"
        for name, parameters in losses
    ]
    size = f"### Training Hyperparameters\n- `per_device_train_batch_size`: {batch_size}\n" if batch_size else ""
    return header + "".join(blocks) + size


OLD_CARD = """
**DataLoader**:
`torch.utils.data.dataloader.DataLoader` of length 100 with parameters:
```
{'batch_size': 16, 'sampler': 'torch.utils.data.sampler.RandomSampler'}
```
**Loss**:
`sentence_transformers.losses.MultipleNegativesRankingLoss.MultipleNegativesRankingLoss` with parameters:
  ```
  {'scale': 30.0, 'similarity_fct': 'cos_sim'}
  ```
"""
# model card, and the temperature, whether it has one direction, and the batch size
CARDS = {
    "scale": (card((RANKING, '"scale": 30.0')), 1 / 30, True, None),
    "default scale": (card((RANKING, '"similarity_fct": "cos_sim"')), 1 / 20, True, None),
    "scale of another loss": (card((RANKING, ""), ("CoSENTLoss", '"scale": 30.0')), 1 / 20, True, None),
    "another loss first": (card(("CoSENTLoss", '"scale": 30.0'), (RANKING, '"scale": 25.0')), 1 / 25, True, None),
    "symmetric": (card(("MultipleNegativesSymmetricRankingLoss", '"scale": 30.0')), 1 / 30, False, None),
    "both directions": (card((RANKING, '"directions": ["query_to_doc", "doc_to_query"]')), 1 / 20, False, None),
    "cached": (card(("CachedMultipleNegativesRankingLoss", '"scale": 50.0')), 1 / 50, True, None),
    "Matryoshka": (card(("MatryoshkaLoss", f'"loss": "{RANKING}", "dims": [768, 64]')), 1 / 20, True, None),
    "batch size": (card((RANKING, '"scale": 20.0'), batch_size=64), 1 / 20, True, 64),
    "old card": (OLD_CARD, 1 / 30, True, 16),
    "another loss": (card(("CoSENTLoss", '"scale": 30.0'), batch_size=32), None, False, 32),
    "implausible scale": (card((RANKING, '"scale": 90000.0')), None, False, None),
}


@pytest.mark.parametrize("case", CARDS)
def test_model_card_is_read_by_block(tmp_path, case):
    text, temperature, one_direction, batch_size = CARDS[case]
    (tmp_path / "README.md").write_text(text)
    settings = model_card.read_folder(tmp_path)
    assert settings.parameters == ({"ntxent": {"temperature": temperature}} if temperature else {})
    assert (settings.one_direction, settings.batch_size) == (one_direction, batch_size)


def test_trainer_state_records_batch_size(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"train_batch_size": 48, "epoch": 2.0}')
    assert model_card.read_folder(tmp_path).batch_size == 48
    assert recorded.read({"hyper_parameters": {"batch_size": 24, "loader": {"batch_size": 7}}}).batch_size == 24


@pytest.fixture
def ranked(tmp_path):
    """A checkpoint whose card records a ranking loss and a batch size, with embeddings instead of an encoder."""
    (tmp_path / "README.md").write_text(card((RANKING, '"scale": 20.0'), batch_size=16))
    draw = torch.Generator().manual_seed(0)
    rows = {name: torch.randn(64, 8, generator=draw) for name in ("query", "candidate")}
    torch.save(rows, tmp_path / "a.pt")
    return replace(cocos.open(tmp_path / "a.pt"), settings=model_card.read_folder(tmp_path))


def test_ranking_loss_of_a_card_is_counted_in_one_direction(ranked):
    for loss, directions in ((None, ["q2c"]), ("ntxent", ["q2c"]), ("triplet", ["q2c", "c2q"])):
        dataset = cocos.count(ranked, ranked.loss(loss)[0], batch_size=16)
        assert dataset.direction.values.tolist() == directions
    whole = cocos.measures.replay(ranked, what={"temperature": [0.02, 0.05]}, batch_size=16)
    assert whole.direction.values.tolist() == ["q2c"]


def test_recorded_batch_size_is_the_default_of_commands(ranked, monkeypatch):
    monkeypatch.setattr(options, "open_source", lambda *_: ranked)
    for arguments, size in (((), 16), (("--batch-size", "32"), 32)):
        done = CliRunner().invoke(app, ["count", "a.pt", "--json", *arguments])
        assert json.loads(done.stdout)["batch_size"] == size
