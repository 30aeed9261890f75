"""Other distributions add losses, encoders and formats by name: entry points of packages on the search path."""

import importlib.metadata
import sys

import pytest

from cocos import InputError, plugins


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
