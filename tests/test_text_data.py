"""Tables of texts become training sets: columns by name, groups of equal texts, rows that are wrong named by line."""

import gzip
import json

import pytest

from cocos import data
from cocos.base.errors import InputError

PAIRS = [
    {"query": "a cat", "positive": "it purrs", "negative_1": "it barks", "negative_2": "it flies"},
    {"query": "a dog", "positive": "it barks", "negative_1": "it purrs", "negative_2": None},
    {"query": "a bird", "positive": "it flies", "negative_1": "", "negative_2": "it swims"},
]
LABELLED = [{"text": "one", "label": 4}, {"text": "two", "label": 4}, {"text": "three", "label": 9}]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def delimited(rows, sign):
    head = list(rows[0])
    return "".join(
        sign.join(str(each.get(k) or "") for k in head) + "\n" for each in [dict(zip(head, head, strict=False)), *rows]
    )


def write(path, rows):
    """A file of rows, in the form of its suffix."""
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    elif path.suffix in {".csv", ".tsv"}:
        path.write_text(delimited(rows, "\t" if path.suffix == ".tsv" else ","), "utf-8-sig")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines(rows).encode()))
    else:
        path.write_text(json.dumps(rows, indent=1) if path.suffix == ".json" else lines(rows))
    return path


def loaded(path, split="train", **columns):
    return data.find(path, {"columns": columns} if columns else None).load(split)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.tsv", "a.parquet"])
def test_pairs_with_hard_negatives(name, tmp_path):
    source = data.find(write(tmp_path / name, PAIRS))
    assert (source.kind, source.splits) == ("pairs", ("train",))
    found = source.load()
    assert found.query.items == ("a cat", "a dog", "a bird") and found.query.kind == "text"
    assert found.candidate.items == ("it purrs", "it barks", "it flies", "it swims")
    assert found.negatives.tolist() == [[1, 2], [0, -1], [3, -1]]
    assert found.query.group.tolist() == found.candidate.group.tolist()[:3]
    assert len(set(found.candidate.group.tolist())) == 4
    assert found.directions == ("q2c", "c2q") and found.name == "a"
    (note,) = found.notes
    assert "query=query,positive=positive,negative=negative_1,negative_2" in note


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_texts_with_labels(name, tmp_path):
    found = loaded(write(tmp_path / name, LABELLED))
    assert found.candidate is None and found.directions == ("s2s",)
    assert found.query.items == ("one", "two", "three") and found.query.group.tolist() == [0, 0, 1]


def test_duplicates_are_no_negatives(tmp_path):
    """Equal texts are one row; what shares one is one group, through both sides."""
    rows = [("a", "x"), ("a", "y"), ("b", "y"), ("c", "z"), ("z", "w"), ("d", "v"), ("d", "v")]
    found = loaded(write(tmp_path / "a.jsonl", [{"anchor": one, "positive": other} for one, other in rows]))
    assert found.query.items == ("a", "b", "c", "z", "d") and found.candidate.items == ("x", "y", "z", "w", "v")
    group = dict(zip(found.query.items, found.query.group.tolist(), strict=False))
    group_of = dict(zip(found.candidate.items, found.candidate.group.tolist(), strict=False))
    assert group["a"] == group["b"] == group_of["x"] == group_of["y"]
    assert group["c"] == group["z"] == group_of["z"] == group_of["w"] and group["d"] == group_of["v"]
    assert len(set(group.values())) == 3
    note, _ = found.notes
    for number in ("7 pairs", "2 repeat a query", "2 a positive", "3 groups", "4 texts"):
        assert number in note


def test_a_hard_negative_of_its_own_group_is_left_out(tmp_path):
    rows = [{"anchor": "a", "positive": "x"}, {"anchor": "a", "positive": "y", "negative": ["x", "z"]}]
    found = loaded(write(tmp_path / "a.jsonl", rows))
    assert found.negatives.tolist() == [[2]] and found.candidate.items == ("x", "y", "z")
    assert "line 2" in found.notes[1]


def test_columns_of_any_name(tmp_path):
    rows = [{"id": 1, "title": "a", "body": "x", "wrong": "y", "bad": "z"}, {"id": 2, "title": "b", "body": "v"}]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match="id, title, body, wrong, bad.*--columns"):
        data.find(path).load()
    one = loaded(path, query="title", positive="body", negative=["wrong", "bad"])
    two = data.find(path, {"columns": "query=title,positive=body,negative=wrong,bad"}).load()
    assert one.negatives.tolist() == [[2, 3], [-1, -1]] and one.identity == two.identity
    assert loaded(path, text="title", label="id").query.group.tolist() == [0, 1]
    with pytest.raises(InputError, match="'titel'.*'title'"):
        loaded(path, query="titel", positive="body")
    with pytest.raises(InputError, match="'postive'.*'positive'"):
        loaded(path, query="title", postive="body")
    with pytest.raises(InputError, match="title, body"):
        loaded(path, query=["title", "body"], positive="body")


@pytest.mark.parametrize(
    "rows",
    [
        [["a", "x", "y"], ["b", "v", "w"]],
        [{"query": "a", "pos": ["x"], "neg": ["y"]}, {"query": "b", "pos": ["v"], "neg": ["w"]}],
        [
            {"Question": "a", "Answer": "x", "hard_negative": "y"},
            {"Question": "b", "Answer": "v", "hard_negative": "w"},
        ],
    ],
)
def test_layouts_that_are_published(rows, tmp_path):
    found = loaded(write(tmp_path / "a.jsonl", rows))
    assert found.query.items == ("a", "b") and found.candidate.items == ("x", "v", "y", "w")
    assert found.negatives.tolist() == [[2], [3]]


def test_lists_of_texts_are_groups(tmp_path):
    found = loaded(write(tmp_path / "a.jsonl", [{"set": ["a", "b"]}, {"set": ["c", "d", "a"]}]))
    assert found.query.items == ("a", "b", "c", "d", "a") and found.query.group.tolist() == [0, 0, 1, 1, 1]
    assert "1 texts" in found.notes[0] and "line 2" in found.notes[0]


def test_rows_that_do_not_match_are_hard_negatives(tmp_path):
    rows = [{"sentence1": "a", "sentence2": text, "label": k % 2} for k, text in enumerate("wxyz")]
    found = loaded(write(tmp_path / "a.jsonl", rows))
    assert found.candidate.items == ("x", "z", "w", "y") and found.negatives.tolist() == [[2, 3]]
    graded = write(tmp_path / "b.csv", [each | {"label": 0.4} for each in rows])
    with pytest.raises(InputError, match="line 2: label is '0.4'.*--columns"):
        loaded(graded)
    assert len(loaded(graded, query="sentence1", positive="sentence2").candidate) == 4


def test_splits_of_a_column_and_of_a_folder(tmp_path):
    rows = [each | {"split": name} for each, name in zip(PAIRS, ("train", "train", "test"), strict=False)]
    source = data.find(write(tmp_path / "a.jsonl", rows))
    assert source.splits == ("train", "test", "all") and source.load("test").query.items == ("a bird",)
    for k, name in enumerate(("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test.csv")):
        write(tmp_path / name, PAIRS[k : k + 1])
    (tmp_path / "README.md").write_text("mine")
    source = data.find(tmp_path)
    assert source.kind == "pairs" and set(source.splits) == {"train", "test", "all"}
    assert source.load("train").query.items == ("a cat", "a dog") and source.load("test").query.items == ("a bird",)
    with pytest.raises(InputError, match="'tset'.*'test'"):
        source.load("tset")


def test_rows_that_a_split_leaves_out_are_said_with_the_way_to_all(tmp_path):
    rows = [each | {"split": name} for each, name in zip(PAIRS, ("train", "train", "test"), strict=False)]
    source = data.find(write(tmp_path / "a.jsonl", rows))
    said = "a: 2 of 3 rows are in split train (column split); --split all takes all"
    assert said in source.load("train").notes
    whole = source.load("all")
    assert len(whole.query) == 3 and not [note for note in whole.notes if "--split" in note]
    alone = data.find(write(tmp_path / "b.jsonl", [each | {"split": "all"} for each in rows]))
    assert alone.splits == ("all",) and len(alone.load("all").query) == 3
    single = data.find(write(tmp_path / "c.jsonl", PAIRS))
    assert single.splits == ("train",) and not [note for note in single.load("train").notes if "--split" in note]
    for k, name in enumerate(("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test.csv")):
        write(tmp_path / name, PAIRS[k : k + 1])
    assert len(data.find(tmp_path).load("all").query) == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"query": "a", "positive": "x"}\n{"query": "b", "posi\n', "line 2"),
        ("a.jsonl", '{"query": "a", "positive": "x"}\n\n3\n', "line 3"),
        ("a.jsonl", '{"query": "a", "positive": "x"}\n{"query": "b"}\n', "line 2: positive is 'None'"),
        ("a.jsonl", '{"query": "a", "positive": 3}\n', "line 1: positive is '3'"),
        ("a.jsonl", '{"query": " ", "positive": "x"}\n', "line 1: query is ' '"),
        ("a.jsonl", '{"query": "a", "positive": "x", "neg": {"b": 1}}\n', "line 1: neg"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": NaN}\n', "line 2: label is 'nan'"),
        ("a.jsonl", '{"text": "a", "label": 1.5}\n', "line 1: label is '1.5'"),
        ("a.jsonl", '{"text": "a"}\n', "line 1: text is one text.*label=NAME"),
        ("a.jsonl", "[" * 100_000, "line 1: no JSON"),
        ("a.jsonl", '{"query": "a", "positive": "x"}\n{"query": "\xff", "positive": "x"}\n', "line 2: not UTF-8"),
        ("a.csv", "text,label\na,1\nb,\n", "line 3: label is ''"),
        ("a.csv", "text,label\na,1\nb,nan\n", "line 3: label is 'nan'"),
        ("a.csv", "text,label\na,1,2\n", "line 2: 3 fields, expected 2"),
        ("a.csv", 'text,label\na,1\n"b,2\n' + "c,3\n" * 40_000, "quotation mark"),
        ("a.csv", "text,text\na,1\n", "'text' stands twice"),
        ("a.csv", "text,label\n", "no row"),
        ("a.csv", "id,name\n1,a\n", r"\(id, name\)"),
        ("a.csv", "text,label\na\0,1\n", "line 2: a zero character"),
        ("a.csv", "query,positive,match\na,x,0\n", "no row has a positive"),
        ("a.csv", "", "is empty"),
        ("a.csv", "no table at all\n", "no table"),
        ("a.json", '[{"query": "a"', "no JSON"),
        ("a.csv.gz", b"\x1f\x8b" + b"\0" * 40, "damaged|cannot be read"),
        ("a.parquet", b"PAR1" + b"\0" * 40, "damaged parquet|pyarrow"),
    ],
)
def test_what_is_wrong_is_named(name, content, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("latin1"))
    with pytest.raises(InputError, match=said) as raised:
        data.find(path, {"kind": "pairs"}).load()
    assert str(path) in str(raised.value) or "a, train" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_parquet_label_that_is_missing(tmp_path):
    path = write(tmp_path / "a.parquet", [{"text": "a", "label": 1.0}, {"text": "b", "label": float("nan")}])
    with pytest.raises(InputError, match="row 1: label is 'nan'"):
        loaded(path)


def test_a_file_of_no_kind_lists_the_kinds(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="pairs, .*precomp.*--data file.py:load"):
        data.find(tmp_path / "a.bin")
    with pytest.raises(InputError, match="no such file"):
        data.find(tmp_path / "b.bin")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A dataset with two splits, as `datasets` writes it, and a single one."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("saved")
    whole = datasets.Dataset.from_list(PAIRS)
    datasets.DatasetDict({"train": whole, "test": whole.select([2])}).save_to_disk(folder / "both")
    datasets.Dataset.from_list(LABELLED).save_to_disk(folder / "one")
    return folder


def test_saved_datasets(saved):
    source = data.find(saved / "both")
    assert (source.kind, source.splits) == ("saved_datasets", ("train", "test", "all"))
    assert source.load("train").negatives.tolist() == [[1, 2], [0, -1], [3, -1]]
    assert source.load("test").query.items == ("a bird",)
    assert data.find(saved / "one").load().query.group.tolist() == [0, 0, 1]


@pytest.fixture
def folder(tmp_path):
    """A dataset saved to disk, written by hand."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.ipc

    table = arrow.Table.from_pylist(LABELLED)
    for name, make in (("data.arrow", pyarrow.ipc.new_stream), ("other.arrow", pyarrow.ipc.new_file)):
        with arrow.OSFile(str(tmp_path / name), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table)
    about = {"_data_files": [{"filename": "data.arrow"}, {"filename": "other.arrow"}], "_split": None}
    (tmp_path / "state.json").write_text(json.dumps(about))
    return tmp_path


def test_both_forms_of_arrow_files(folder):
    assert data.find(folder).load().query.items == ("one", "two", "three") * 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("state.json", b"{", "not readable as JSON"),
        ("state.json", b"[1]", "list, expected an object"),
        ("state.json", b'{"_data_files": [{"filename": "../data.arrow"}]}', r"\.\./data.arrow"),
        ("state.json", b'{"_data_files": [{"filename": "gone.arrow"}]}', "no gone.arrow"),
        ("state.json", b'{"_data_files": []}', "no .arrow file"),
        ("state.json", b'{"_indices_data_files": [1]}', "flatten_indices"),
        ("data.arrow", b"\0" * 100, "damaged Arrow"),
        ("data.arrow", b"", "damaged Arrow"),
        ("dataset_dict.json", b'{"splits": ["../x"]}', r"\.\./x"),
        ("dataset_dict.json", b'{"splits": ["gone"]}', "gone"),
    ],
)
def test_a_damaged_saved_dataset(name, content, said, folder):
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        source = data.find(folder)
        source.load(source.splits[0])


def test_reading_parquet_without_pyarrow_names_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install 'cocos-metric\[data\]'"):
        data.find(path).load()


def test_the_identity_follows_every_row(tmp_path):
    path = write(tmp_path / "a.jsonl", PAIRS)
    seen = {loaded(path).identity}
    for change in ({"query": "a horse"}, {"positive": "it neighs"}, {"negative_1": "it sings"}):
        seen.add(loaded(write(path, [PAIRS[0] | change, *PAIRS[1:]])).identity)
    assert len(seen) == 4


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError, match="is empty"):
        data.find(tmp_path / "a.csv")


@pytest.mark.parametrize("columns", [5, ["query"], {"query": 3}, {"query": [["x"]]}, {3: "query"}])
def test_columns_that_are_none_are_refused(tmp_path, columns):
    with pytest.raises(InputError, match="column"):
        data.find(write(tmp_path / "a.jsonl", PAIRS), {"columns": columns}).load()
