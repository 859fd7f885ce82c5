"""Catalog files of a checkpoint: definitions sorted by name, cut by number and by bytes.

Opening a table by name reads one file whole, so no file is larger than a lookup should cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_pages.format.checkpoint_tree import even_chunks
from spark_pages.format.names import catalog_key
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.checkpoint.root import CatalogFile, encode_catalog
from spark_pages.log.state import LogState
from spark_pages.model.table import TableDefinition

_MAX_FILE_BYTES = 96 << 10
_MAX_FILE_COLUMNS = 16_384
"""A file with more is halved, unless it holds a single table. Columns bound what it takes in memory: schemas
that resemble each other shrink to a twentieth in storage."""


def write_catalog(
    objects: ObjectWriter, state: LogState, previous: Checkpoint | None, tables_per_file: int
) -> tuple[CatalogFile, ...]:
    """The catalog files of the state; untouched ones are shared with the previous checkpoint."""
    changed = {(d.namespace_id, d.name): d for d in state.tables.values() if d is not None}
    touched = set(state.names) | set(changed)
    files = list(previous.root.catalog) if previous else []
    if not touched:
        return tuple(files)
    if not files:
        return tuple(
            _split(objects, [changed[name] for name in sorted(changed)], tables_per_file, state.version)
        )
    assert previous is not None
    per_file: dict[int, set[tuple[int, str]]] = {}
    for name in touched:
        index = next((i for i, file in enumerate(files) if file.last >= name), len(files) - 1)
        per_file.setdefault(index, set()).add(name)
    out: list[CatalogFile] = []
    for index, file in enumerate(files):
        if index not in per_file:
            out.append(file)
            continue
        live = {(d.namespace_id, d.name): d for d in previous.tree.catalog(file.location)}
        for name in per_file[index]:
            live.pop(name, None)
            if name in changed:
                live[name] = changed[name]
        out += _split(objects, [live[name] for name in sorted(live)], tables_per_file, state.version)
    return tuple(out)


def _split(
    objects: ObjectWriter, definitions: Sequence[TableDefinition], tables_per_file: int, version: int
) -> list[CatalogFile]:
    files: list[CatalogFile] = []
    for start, stop in even_chunks(len(definitions), tables_per_file):
        files += _write(objects, definitions[start:stop], version)
    return files


def _write(objects: ObjectWriter, definitions: Sequence[TableDefinition], version: int) -> list[CatalogFile]:
    many = len(definitions) > 1
    columns = sum(len(definition.schema) for definition in definitions)
    data = b"" if many and columns > _MAX_FILE_COLUMNS else encode_catalog(definitions, version)
    if not data or (many and len(data) > _MAX_FILE_BYTES):
        middle = len(definitions) // 2
        return [
            *_write(objects, definitions[:middle], version),
            *_write(objects, definitions[middle:], version),
        ]
    first, last = definitions[0], definitions[-1]
    location = objects.put(data, catalog_key)
    return [CatalogFile((first.namespace_id, first.name), (last.namespace_id, last.name), location)]
