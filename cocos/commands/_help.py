"""Help texts in groups."""

from collections.abc import Mapping, Sequence

from typer.core import TyperCommand

__all__ = ["GroupedCommand", "write_sections"]

OPTION_GROUPS = {
    "Loss": ("loss", "param", "eps", "convention", "against"),
    "Batches": ("batch_size", "batches", "sample", "per_group", "same_group", "seed"),
    "File and model": ("data", "split", "model", "trust", "distractors", "device", "dtype"),
    "Output": ("format", "as_json", "out", "width", "quiet", "metrics", "help"),
}
DEBUG_ROW = ("--debug", "Show the traceback of your own code (--loss, --model) as well.")


def write_sections(formatter, groups: Mapping[str, Sequence[str]], rows: dict[str, tuple[str, str]], rest: str) -> None:
    """Write the rows of a help text under the titles of their groups.

    Args:
        formatter: of click.
        groups: names of the rows by the title of their group, in the order of the help text.
        rows: (name as written, help) by name.
        rest: title of the rows in no group, which come first.
    """
    grouped = {name for names in groups.values() for name in names}
    sections = {rest: [row for name, row in rows.items() if name not in grouped]}
    sections |= {title: [rows[name] for name in names if name in rows] for title, names in groups.items()}
    for title, lines in sections.items():
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)


class GroupedCommand(TyperCommand):
    """A command whose help lists its options in groups."""

    def format_options(self, ctx, formatter) -> None:
        """Write arguments, then options by group."""
        rows = {kind: {} for kind in ("argument", "option")}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                rows[param.param_type_name][param.name] = record
        options, groups = rows["option"], OPTION_GROUPS
        if {"loss", "model"} & options.keys():
            options, groups = options | {"debug": DEBUG_ROW}, groups | {"Output": (*groups["Output"], "debug")}
        write_sections(formatter, {"Arguments": tuple(rows["argument"])}, rows["argument"], "")
        write_sections(formatter, groups, options, "Options")
