"""Files are written whole or not at all."""

import os
import stat

import pytest

from cocos.base.writing import replacing


def test_a_file_takes_its_place_in_one_move(tmp_path):
    path = tmp_path / "a.nc"
    path.write_text("old")
    reader = path.open()
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path and temporary.suffix == ".nc"
    assert path.read_text() == "new"
    assert reader.read() == "old"  # moved, not copied over: who had it open keeps what he had
    reader.close()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert os.listdir(tmp_path) == ["a.nc"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_nothing_and_changes_nothing(tmp_path, error):
    path = tmp_path / "a.nc"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.nc"]
