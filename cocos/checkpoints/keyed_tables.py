"""Groups and texts of rows that stand in parquet files in another order, and are found by a key.

In: keys of the rows, and the columns of the tables. Out: a value for each row. The join is pyarrow's hash lookup; a key
that is not in the tables, or that is there twice, is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cocos.base import reading
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import tables


@dataclass(frozen=True, eq=False)
class KeyedTable:
    """Parquet files with a row for each key.

    Args:
        name: for messages.
        files: of one schema.
        key: column of the keys.
        keys: gives the key of each row of the embeddings.
    """

    name: str
    files: Sequence[Path]
    key: str
    keys: Callable[[], Any]

    def refuse_unknown(self, columns: Sequence[str]) -> None:
        """Refuse files that lack one of some columns, by their headers alone."""
        for file in self.files:
            held = tables.read(file).names
            if lacking := [each for each in (self.key, *columns) if each not in held]:
                raise InputError(f"{self.name}: {file}: {nearest('column', lacking[0], held)}")

    def _column(self, column: str) -> Any:
        parquet, arrow = tables.pyarrow(self.name, "pyarrow.parquet"), tables.pyarrow(self.name)
        try:
            parts = [parquet.read_table(reading.regular(each), columns=[column]).column(0) for each in self.files]
            found = arrow.chunked_array([some for part in parts for some in part.chunks], parts[0].type)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{self.name}, {column}: damaged ({tables.reason(error)}); write it again") from None
        if found.null_count:
            raise InputError(f"{self.name}, {column}: {found.null_count:,} values are missing; write every row whole")
        return found.combine_chunks()

    @cached_property
    def _places(self) -> Any:
        """Row of the tables of each row of the embeddings."""
        arrow, compute = tables.pyarrow(self.name), tables.pyarrow(self.name, "pyarrow.compute")
        keys, own = self._column(self.key), arrow.array(np.asarray(self.keys()))
        if compute.count_distinct(keys).as_py() < len(keys):
            counted = compute.value_counts(keys)
            twice = counted.filter(compute.greater(counted.field("counts"), 1))[0]
            raise InputError(
                f"{self.name}: the key {twice['values']} stands in {twice['counts']} rows; keep one of them"
            )
        try:
            places = compute.index_in(own.cast(keys.type), value_set=keys)
        except arrow.ArrowException:
            raise InputError(f"{self.name}: keys are {own.type} of the rows, and {keys.type} there") from None
        if places.null_count:
            row = places.is_null().index(True).as_py()
            raise InputError(
                f"{self.name}: row {row} has the key {own[row]}, which is not there ({places.null_count:,} in all)"
            )
        return places

    def values(self, column: str) -> np.ndarray:
        """The value of a column for each row of the embeddings."""
        found = self._column(column).take(self._places)
        made = np.array(found.to_numpy(zero_copy_only=False))  # a copy, which may be written to
        return np.array(found.to_pylist()) if made.dtype == object else made
