"""Other distributions add losses, encoders and formats by name: entry points of packages on the search path."""

import importlib.metadata
import sys

import pytest
import torch

import cocos
from cocos import InputError, UnsafeFile, checkpoints, losses
from cocos.base import plugins
from cocos.checkpoints import encoders
from cocos.checkpoints.formats import native


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution as pip does, module and metadata: install(name, version, source, entry points)."""

    def install(name, version, source, points, *, group=plugins.LOSSES):
        folder = tmp_path / name
        module = name.replace("-", "_")
        about = folder / f"{module}-{version}.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(
            f"[{group}]\n" + "\n".join(f"{key} = {module}{value}" for key, value in points.items())
        )
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, module, raising=False)

    before = set(sys.modules)
    yield install
    for module in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[module], "__file__", "")):
            del sys.modules[module]


def test_a_plugin_is_found_by_name_with_its_distribution(installed):
    installed("my-formats", "1.2", "READ = 'read'\n", {"mine": ":READ"}, group=plugins.CHECKPOINTS)
    assert plugins.names(plugins.CHECKPOINTS) == ["mine"] and plugins.names(plugins.LOSSES) == []
    found = plugins.find(plugins.CHECKPOINTS, "mine")
    assert (found.name, found.target, str(found)) == ("mine", "read", "my-formats 1.2")
    assert plugins.installed(plugins.CHECKPOINTS) == [found]
    assert plugins.find(plugins.CHECKPOINTS, "other") is None


def test_a_name_is_listed_without_importing_anything(installed):
    installed("my-broken", "0.1", "raise RuntimeError('of the\\nweather')\n", {"mine": ":READ"})
    assert plugins.names(plugins.LOSSES) == ["mine"] and "my_broken" not in sys.modules


@pytest.mark.parametrize(
    "source, said",
    [
        ("raise RuntimeError('of the\\nweather')\n", "RuntimeError: of the weather"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
        ("OTHER = 1\n", "AttributeError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_broken_entry_point_is_one_sentence(installed, source, said):
    installed("my-broken", "0.1", source, {"mine": ":READ"})
    for find in (lambda: plugins.find(plugins.LOSSES, "mine"), lambda: plugins.installed(plugins.LOSSES)):
        with pytest.raises(InputError) as caught:
            find()
        assert "\n" not in str(caught.value)
        for part in (said, "mine = my_broken:READ", "cocos.losses", "my-broken 0.1"):
            assert part in str(caught.value)


def test_a_name_that_two_distributions_claim_is_refused(installed):
    installed("my-first", "1.0", "READ = 1\n", {"mine": ":READ"})
    installed("my-second", "2.0", "READ = 2\n", {"mine": ":READ"})
    with pytest.raises(
        InputError, match=r"mine.*my-second 2\.0 and my-first 1\.0|mine.*my-first 1\.0 and my-second 2\.0"
    ):
        plugins.find(plugins.LOSSES, "mine")


def test_a_distribution_that_the_path_shows_twice_is_one(installed, monkeypatch):
    installed("my-first", "1.0", "READ = 1\n", {"mine": ":READ"})
    monkeypatch.setattr(sys, "path", [sys.path[0], *sys.path])
    assert len([p for p in importlib.metadata.entry_points(group=plugins.LOSSES) if p.name == "mine"]) >= 1
    assert plugins.find(plugins.LOSSES, "mine").target == 1


LOSS = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Doubled:
    temperature: float = 0.1
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"

    def __call__(self, pairs):
        return 2 * pairs.cross_entropy(pairs.scores / self.temperature)

    def weight(self, pairs):
        return 2 * pairs.residual(pairs.scores / self.temperature) / self.temperature

    def unit(self, pairs):
        return 2 / self.temperature * pairs.positives()

def plain(scores, positive, negative, power=2.0):
    return ((scores * negative).clamp(min=0) ** power).sum(dim=1)
"""
POINTS = {"doubled": ":Doubled", "plain_power": ":plain"}


@pytest.fixture
def embeddings():
    generator = torch.Generator().manual_seed(0)
    query, candidate = (torch.randn(12, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    return cocos.Embeddings(query, candidate)


def test_a_loss_of_another_distribution_is_counted_like_one_of_the_shelf(installed, embeddings):
    installed("my-losses", "1.2", LOSS, POINTS)
    loss = losses.load("doubled", {"scale": "5"})
    assert (losses.name_of(loss), losses.parameters(loss)) == ("doubled", {"temperature": 0.2})
    pairs = cocos.scores.pairs(embeddings)
    assert torch.equal(loss(pairs.scores, pairs.positive), loss(pairs))
    assert losses.canonical("doubled") == "doubled" and losses.known("doubled") == {"temperature", "scale"}
    ours, theirs = (cocos.measures.count(embeddings, each) for each in (loss, losses.load("ntxent", {"scale": 5})))
    assert ours["contributing"].equals(theirs["contributing"]) and ours.attrs["loss"] == "doubled"
    assert ours.attrs["loss_distribution"] == "my-losses 1.2" and "loss_distribution" not in theirs.attrs
    named, unnamed = (cocos.measures.document("count", each)["loss"] for each in (ours, theirs))
    assert named == {"name": "doubled", "parameters": {"temperature": 0.2}, "distribution": "my-losses 1.2"}
    assert unnamed.keys() == {"name", "parameters"}


def test_a_function_of_another_distribution_is_a_loss_too(installed, embeddings):
    installed("my-losses", "1.2", LOSS, POINTS)
    loss = losses.load("plain_power", {"power": 3})
    assert losses.name_of(loss) == "plain_power" and losses.parameters(loss) == {"power": 3}
    together = losses.load("triplet+0.5*plain_power")
    assert losses.name_of(together) == "triplet+0.5*plain_power"
    for each in (loss, together):
        assert cocos.measures.count(embeddings, each).attrs["loss_distribution"] == "my-losses 1.2"


def test_a_name_of_the_shelf_is_never_looked_up_elsewhere(installed, monkeypatch):
    installed("my-losses", "1.2", LOSS, {"triplet": ":Doubled", "InfoNCE": ":Doubled"})
    monkeypatch.setattr(plugins, "_entry_points", lambda group: pytest.fail("looked up"))
    assert losses.load("triplet") == losses.triplet.Triplet() and losses.load("InfoNCE") == losses.ntxent.NTXent()


def test_an_unknown_name_or_parameter_names_those_of_other_distributions(installed):
    installed("my-losses", "1.2", LOSS, POINTS)
    with pytest.raises(InputError, match="plain_power"):
        losses.load("plain_powr")
    with pytest.raises(InputError, match="parameter of doubled 'temprature'.*temperature"):
        losses.load("doubled", {"temprature": 1})


def test_a_file_cannot_name_a_loss_of_another_distribution(installed):
    installed("my-losses", "1.2", LOSS, POINTS)
    with pytest.raises(InputError, match="doubled"):
        losses.module_name("doubled")


ENCODER = """
import torch

class Towers(torch.nn.Module):
    name = "mine"
    kinds = ("image", "text")

    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(3, width, bias=False)

    def encode(self, items, kind, side):
        if kind == "image":
            return self.layer(items.float().mean(dim=(2, 3)))
        return self.layer(torch.tensor([[len(each), 1.0, each.count("e")] for each in items]))

def build(width):
    return Towers(width)
"""
FORMAT = """
import torch
from cocos import Checkpoint, Embeddings

def recognises(file):
    return "sides" in file.record

def read(file, data=None):
    query, candidate = file.record["sides"]
    found = Embeddings(query, candidate)
    return Checkpoint(file.path, file.sha256, "mine", {}, lambda split, device, progress: found)
"""


def test_a_checkpoint_can_name_an_encoder_of_another_distribution(installed, tmp_path):
    with pytest.raises(InputError, match="unknown encoder 'my_towers'"):
        encoders.build("my_towers", {"width": 4})
    installed("my-encoders", "0.3", ENCODER, {"my_towers": ""}, group=plugins.ENCODERS)
    assert "my_encoders" not in sys.modules
    native.write(
        tmp_path / "a.pt",
        encoders.build("my_towers", {"width": 4}),
        encoder=("my_towers", {"width": 4}),
        loss=("ntxent", {"temperature": 0.1}),
        data=("emoji_captions", {}),
        training={},
    )
    opened = cocos.open(tmp_path / "a.pt")
    assert opened.distribution == "my-encoders 0.3" == opened.identity()["checkpoint_distribution"]
    assert opened.embed("val", "cpu").query.shape == (376, 4)


def test_a_format_of_another_distribution_reads_what_ours_do_not_recognise(installed, tmp_path):
    sides = torch.rand(4, 3), torch.rand(4, 3)
    torch.save({"sides": sides}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="architecture that cocos does not know"):
        cocos.open(tmp_path / "a.pt")
    installed("my-formats", "1.2", FORMAT, {"mine": ""}, group=plugins.CHECKPOINTS)
    torch.save({"query": sides[0], "candidate": sides[1]}, tmp_path / "b.pt")
    assert cocos.open(tmp_path / "b.pt").format == "embeddings" and "my_formats" not in sys.modules
    opened = cocos.open(tmp_path / "a.pt")
    assert (opened.format, opened.distribution) == ("mine", "my-formats 1.2")
    data = cocos.measures.count(opened, "ntxent", batch_size=4)
    assert data.attrs["checkpoint_distribution"] == "my-formats 1.2"
    assert checkpoints.inspect(tmp_path / "a.pt")["format"] == "mine"


@pytest.mark.parametrize(
    "source, said",
    [
        ("raise RuntimeError('weather')", "RuntimeError: weather"),
        ("def recognises(file): return True", "AttributeError"),
        (FORMAT.replace("return Checkpoint", "return"), "read returned a tuple, expected cocos.Checkpoint"),
        (FORMAT.replace('"sides" in file.record', "1 / 0"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_format_that_cannot_be_used_is_one_sentence_with_its_distribution(installed, tmp_path, source, said):
    torch.save({"sides": (torch.rand(4, 3), torch.rand(4, 3))}, tmp_path / "a.pt")
    installed("my-formats", "1.2", source, {"mine": ""}, group=plugins.CHECKPOINTS)
    with pytest.raises(InputError) as caught:
        cocos.open(tmp_path / "a.pt")
    assert "\n" not in str(caught.value) and all(part in str(caught.value) for part in (said, "my-formats 1.2", "a.pt"))


def test_a_file_that_asks_for_code_is_refused_before_any_format_of_others_reads_it(installed, tmp_path):
    class Shell:
        def __reduce__(self):
            return __import__("os").system, ("true",)

    installed("my-formats", "1.2", FORMAT, {"mine": ""}, group=plugins.CHECKPOINTS)
    torch.save({"sides": Shell()}, tmp_path / "a.pt")
    with pytest.raises(UnsafeFile, match="would run"):
        cocos.open(tmp_path / "a.pt")
    assert "my_formats" not in sys.modules
