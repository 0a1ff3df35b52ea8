"""Tables of Hugging Face data sets, read with pyarrow: arrow files of `save_to_disk`, which are mapped, and parquet."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from locality.data.annotated import SPLIT_FOLDERS
from locality.data.roots import MAX_FILE_BYTES, Folder
from locality.errors import DataError, Fault, unknown_choice

IMAGE = ("image", "img", "picture")  # what the column of images may be called
MAX_BYTES = 1 << 31  # of parquet, unpacked; arrow files are mapped, and may be of any size


@dataclass(frozen=True)
class Rows:
    """The images in the rows of a table, as files that are named by their row: `00000012`."""

    path: Path
    files: tuple[Path, ...]
    image: str = ""
    _opened: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Rows], tuple[Path, tuple[Path, ...], str]]:
        return type(self), (self.path, self.files, self.image)

    @property
    def table(self) -> Any:
        """The table of all files, checked."""
        if not self._opened:
            self._opened["table"] = read_table(self.files)
        return self._opened["table"]

    @property
    def column(self) -> str:
        name = chosen_column("image", self.image, IMAGE, self.table.column_names)
        if name is None:
            columns = ", ".join(self.table.column_names)[:300]
            raise DataError(f"`{self.path}` has no column of images ({columns}): name it, --data-option image=COLUMN")
        return name

    def bytes_of(self, column: str, row: int) -> bytes:
        """The file inside a cell."""
        cell = self.table.column(column)[row].as_py()
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(data, bytes):
            raise DataError(
                f"column {column!r} has no image in row {row + 1}, only a path: save the data set with its images"
            )
        if len(data) > MAX_FILE_BYTES:
            raise DataError(f"row {row + 1}: larger than {MAX_FILE_BYTES // 2**20} MB, which no photograph is")
        return data

    def names(self) -> list[str]:
        return [f"{row:08d}" for row in range(self.table.num_rows)]

    def faults(self) -> list[Fault]:
        return []

    def read(self, name: str) -> bytes:
        """The image of a row."""
        if not name.isdecimal() or int(name) >= self.table.num_rows:
            raise FileNotFoundError(f"{name} in {self.path}")
        return self.bytes_of(self.column, int(name))

    def open(self, name: str) -> IO[bytes]:
        return io.BytesIO(self.read(name))

    def checksum(self, name: str) -> str:
        try:
            return hashlib.sha256(self.read(name)).hexdigest()
        except (DataError, OSError):
            return "cannot be read"


def chosen_column(argument: str, given: str, names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column that is given, or the first of the usual names."""
    if given and given not in columns:
        raise unknown_choice(argument, given, columns)
    return given or next((name for name in names if name in columns), None)


def table_files(path: Path, split: str) -> tuple[Path, ...]:
    """The arrow or parquet files of a split, by the names of folders and files; all if they name no split."""
    if split not in SPLIT_FOLDERS:
        raise unknown_choice("split", split, SPLIT_FOLDERS)
    if path.is_file() and path.suffix.lower() in (".parquet", ".arrow"):
        return (path,)
    if not path.is_dir():
        raise DataError(f"`{path}` is not a folder: pass the folder that `save_to_disk` wrote, or that of parquet files")
    names = Folder(path).names()
    for suffix in (".arrow", ".parquet"):
        files = [name for name in names if name.lower().endswith(suffix) and not _is_cache(name)]
        if files:
            splits = {name: _split_of(name) for name in files}
            if set(splits.values()) - {""}:
                chosen = next((word for word in SPLIT_FOLDERS[split] if word in splits.values()), None)
                if chosen is None and set(splits.values()) == {"train"}:
                    chosen = "train"  # the only split there is
                files = [name for name in files if splits[name] == chosen]
            if not files:
                listed = ", ".join(sorted(set(splits.values())))
                raise DataError(f"`{path}` has no split {' or '.join(SPLIT_FOLDERS[split])}, only {listed}: pass its folder")
            return tuple(path / name for name in files)
    raise DataError(f"`{path}` has no .arrow or .parquet file: pass the folder that `save_to_disk` wrote")


def read_table(files: Sequence[Path]) -> Any:
    """The rows of all files as one table; every offset in it is checked, since a damaged file could point anywhere."""
    import pyarrow as pa

    tables = []
    for file in files:
        try:
            table = _parquet(file) if file.suffix.lower() == ".parquet" else _arrow(file)
            table.validate(full=True)
            tables.append(table)
        except DataError:
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError, RecursionError) as error:
            reason = str(error).partition("\n")[0][:300]
            raise DataError(f"{file}: cannot be read as a table ({reason}): save the data set again") from error
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0][:300]
        raise DataError(f"{files[0].parent}: its files have different columns ({reason}): pass one of them") from error


def class_names(schema: Any, objects: str, label: str) -> list[str] | None:
    """The names of the classes in their order, as the metadata of the table state them; None if they do not."""
    about = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features: Any = json.loads(about[:MAX_FILE_BYTES])["info"]["features"]
        found = [names for part in (objects, label) if part for names in _names_in(features.get(part))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    good = len(found) == 1 and found[0] and all(isinstance(name, str) and name.strip() for name in found[0])
    return [name.strip() for name in found[0]] if good else None


def _names_in(feature: Any) -> Iterator[list[Any]]:
    """Every list of class names in the description of a column."""
    if isinstance(feature, dict):
        if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
            yield feature["names"]
        else:
            for part in feature.values():
                yield from _names_in(part)
    elif isinstance(feature, list):
        for part in feature:
            yield from _names_in(part)


def _is_cache(name: str) -> bool:
    return name.rpartition("/")[2].startswith(("cache-", "tmp"))


def _split_of(name: str) -> str:
    """The split that a file's path names, or "".

    >>> _split_of("data/train-00000-of-00002.parquet"), _split_of("validation/data-00000-of-00001.arrow")
    ('train', 'validation')
    """
    words = {part for piece in name.lower().split("/") for part in piece.replace(".", "-").split("-")}
    return next((word for several in SPLIT_FOLDERS.values() for word in several if word in words), "")


def _arrow(file: Path) -> Any:
    import pyarrow as pa

    before, batches = pa.total_allocated_bytes(), []
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_stream(source)
        for batch in reader:
            batches.append(batch)
            if pa.total_allocated_bytes() - before > MAX_BYTES:  # compressed, which `save_to_disk` never is
                raise DataError(f"{file}: unpacks to more than {MAX_BYTES:,} bytes: save the data set again")
        return pa.Table.from_batches(batches, reader.schema)


def _parquet(file: Path) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, memory_map=True) as table:
        about = table.metadata
        size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        if size > MAX_BYTES:
            raise DataError(
                f"{file}: unpacks to {size:,} bytes, more than {MAX_BYTES:,}: save the data set with save_to_disk"
            )
        return table.read()
