"""Every number of the golden comparison is the stored one."""

import pytest

from golden import calls, files, store


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("group", calls.GROUPS)
def test_golden_numbers_are_equal(group, tmp_path):
    lines = store.differences(group, calls.entries(group, tmp_path), files.OPTIONAL)
    assert not lines, f"{len(lines)} differences\n" + "\n".join(lines[:20])
