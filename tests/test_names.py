"""Losses by the names that people know them by."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cocos import losses
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.losses import catalogue

KNOWN = {
    "ntxent": "InfoNCE infonce clip ClipLoss CLIP-loss multiple_negatives_ranking multiple_negatives_ranking_loss "
    "MultipleNegativesRankingLoss MultipleNegativesSymmetricRankingLoss NT-Xent NTXentLoss SimCLR",
    "n_pair": "npairs N-pairs NPairsLoss n_pair N-pair-mc",
    "supcon": "SupConLoss SupervisedContrastiveLoss sup-con",
    "a_softmax": "sphereface SphereFaceLoss",
    "normalized_softmax": "normface NormalizedSoftmaxLoss ClusterContrast ClusterNCE cluster-contrast",
    "cosface": "AM-Softmax LMCL CosFaceLoss",
    "arcface": "AAM-Softmax ArcFaceLoss",
    "triplet": "sum_of_hinges VSE0 TripletLoss",
    "triplet_sh": "batch_hard VSE++ max-of-hinges BatchHardTripletLoss",
    "triplet_euclidean": "batch_all TripletMarginLoss",
    "triplet_squared": "FaceNet",
    "multi_similarity": "MSLoss MultiSimilarityLoss",
    "linear_softmax": "cross_entropy CE",
    "proxynca_pp": "ProxyNCA++",
    "smoothap": "Smooth-AP smooth_ap SmoothAP",
    "center_contrastive": "CCL",
    "subcenter_arcface": "SubCenterArcFace SubCenterArcFaceLoss sub-center-arcface",
    "adaface": "AdaFace",
    "curricularface": "CurricularFace",
    "align_uniform": "align-uniform alignment_and_uniformity",
}


@pytest.fixture
def file(tmp_path):
    side = np.random.default_rng(0).normal(size=(20, 6))
    np.savez(tmp_path / "e.npz", query=side, candidate=side + 0.3)
    return tmp_path / "e.npz"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("name", KNOWN)
def test_known_names_lead_to_their_loss(name):
    for known in KNOWN[name].split():
        assert losses.load(known).name == name, known
        assert losses.canonical(known) == name


def test_a_name_leads_to_one_loss():
    seen = {}
    for name in losses.names():
        for known in losses.load(name).aliases:
            plain = catalogue.simplify(known)
            assert seen.setdefault(plain, name) == name, (plain, name)
            others = {catalogue.simplify(each) for each in losses.names()} - {catalogue.simplify(name)}
            assert plain not in others, plain


def test_a_name_brings_its_own_parameters_as_defaults(file):
    assert losses.load("MultipleNegativesRankingLoss") == losses.load("ntxent", {"temperature": 0.05})
    assert losses.load("MultipleNegativesRankingLoss", {"scale": 10}) == losses.load("ntxent", {"temperature": 0.1})
    done = call("count", file, "--loss", "MultipleNegativesRankingLoss", "--json")
    assert json.loads(done.stdout)["loss"] == {"name": "ntxent", "parameters": {"temperature": 0.05}}
    said = "loss ntxent, asked for as MultipleNegativesRankingLoss: temperature 0.05 (default of Multiple"
    assert said in done.stderr
    done = call("count", file, "--loss", "MultipleNegativesRankingLoss", "-p", "scale=40", "--json")
    assert json.loads(done.stdout)["loss"]["parameters"] == {"temperature": 0.025}
    assert "temperature 0.025 (given)" in done.stderr
    summed = losses.load("triplet+MultipleNegativesRankingLoss")
    assert summed.parameters == {"triplet.margin": 0.2, "ntxent.temperature": 0.05}
    assert "asked for as" not in call("count", file, "--loss", "NTXENT").stderr


@pytest.mark.parametrize("name", [n for n in losses.names() if "temperature" in losses.load(n).parameters])
def test_a_temperature_may_be_given_as_a_scale(name):
    assert losses.load(name, {"scale": "20"}) == losses.load(name, {"temperature": 0.05})
    with pytest.raises(InputError, match=f"{name}: temperature and scale are given; give one of them"):
        losses.load(name, {"scale": 20, "temperature": 0.05})
    for scale in ("0", "-1", "inf", "nan", "1e-320", "much"):
        with pytest.raises(InputError, match="scale"):
            losses.load(name, {"scale": scale})


def test_parameters_are_given_as_a_dict_or_as_keywords():
    assert losses.load("ntxent", temperature=0.07) == losses.load("ntxent", {"temperature": 0.07})
    assert losses.load("mnrl", {"scale": 10}, filter="percent") == losses.MNRL(scale=10.0, filter="percent")
    assert losses.load("triplet+ntxent", margin=0.3) == losses.load("triplet+ntxent", {"triplet.margin": 0.3})
    assert losses.load("top_k(ntxent)", k=3) == losses.load("top_k(ntxent)", {"k": 3})
    with pytest.raises(InputError, match="ntxent: temperature in the dict of parameters and as a keyword"):
        losses.load("ntxent", {"temperature": 0.1}, temperature=0.1)
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        losses.load("ntxent", temprature=0.1)


def test_every_class_is_an_attribute_of_the_package():
    classes = {type(losses.load(name)).__name__: name for name in losses.names()}
    for name, file in classes.items():
        assert getattr(losses, name) is type(losses.load(file))
    assert set(dir(losses)) == {*losses.__all__, *losses.names(), *classes}
    with pytest.raises(AttributeError, match="NTXnt"):
        _ = losses.NTXnt
