"""How the pages of a table are written: properties of the table, checked when it is created.

| property | values | default |
|---|---|---|
| ``page_bytes`` | bytes of uncompressed Arrow buffers that a page aims at | 65536 |
| ``codec`` | ``lz4``, ``zstd`` or ``none`` | ``lz4`` |
| ``bloom`` | ``true`` (0.01), ``false``, or the share of false positives of bloom filters | ``false`` |
| ``page_bytes.<column>`` and so on | the same for one column | what the table says |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_pages.catalog.namespaces import INHERITED
from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.io import Codec
from spark_pages.model.table import TableDefinition

_CODECS = {codec.name.lower(): codec for codec in Codec}
_BLOOM, _LEAST_RATE = 0.01, 1e-9
_LEAST_BYTES, _MOST_BYTES = 1 << 10, 1 << 30


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What `TableDefinition.properties` says of pages.

    Attributes
    ----------
    page_bytes, codec, bloom
        For every column but those below.
    page_bytes_of, codec_of, bloom_of
        By column.
    """

    page_bytes: int = TARGET_PAGE_BYTES
    codec: Codec = Codec.LZ4
    page_bytes_of: Mapping[str, int] = field(default_factory=dict)
    codec_of: Mapping[str, Codec] = field(default_factory=dict)
    bloom: float | None = None
    bloom_of: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: TableDefinition,
        page_bytes: int = TARGET_PAGE_BYTES,
        inherited: Mapping[str, str] | None = None,
    ) -> PageOptions:
        """Read the options of a table.

        Parameters
        ----------
        page_bytes
            Holds where nobody says anything of that.
        inherited
            Properties of its namespace, which hold where the table says nothing.

        Raises
        ------
        InvalidInputError
            If a property names no column of the table, or has a value that it cannot have.
        """
        codec, sizes, codecs = Codec.LZ4, {}, {}
        bloom: float | None = None
        blooms: dict[str, float | None] = {}
        passed_on = {name: (inherited or {})[name] for name in INHERITED if name in (inherited or {})}
        for name, value in {**passed_on, **table.properties}.items():
            option, _, column = name.partition(".")
            if option not in ("page_bytes", "codec", "bloom"):
                continue
            if column and column not in table.field_ids:
                raise InvalidInputError(
                    f"Cannot use property {name!r} of table {table.name!r}: it ends in no column of "
                    "the table.",
                    hint=f"End it in one of {', '.join(table.field_ids)}.",
                )
            if option == "codec" and column:
                codecs[column] = _codec(table, name, value)
            elif option == "codec":
                codec = _codec(table, name, value)
            elif option == "bloom" and column:
                blooms[column] = _rate(table, name, value)
            elif option == "bloom":
                bloom = _rate(table, name, value)
            elif column:
                sizes[column] = _bytes(table, name, value)
            else:
                page_bytes = _bytes(table, name, value)
        return cls(page_bytes, codec, sizes, codecs, bloom, blooms)

    def bytes_for(self, column: str) -> int:
        """Bytes that a page of the column aims at."""
        return self.page_bytes_of.get(column, self.page_bytes)

    def bloom_for(self, column: str) -> float | None:
        """Share of false positives of the column's bloom filters; None where it has none."""
        return self.bloom_of.get(column, self.bloom)

    def codec_for(self, column: str) -> Codec:
        """How pages of the column are compressed."""
        return self.codec_of.get(column, self.codec)


def _codec(table: TableDefinition, name: str, value: str) -> Codec:
    codec = _CODECS.get(value)
    if codec is None:
        raise InvalidInputError(
            f"Cannot use property {name!r} of table {table.name!r} with value {value!r}: it is not a codec.",
            hint=f"Set it to {' or '.join(map(repr, sorted(_CODECS)))}.",
        )
    return codec


def _rate(table: TableDefinition, name: str, value: str) -> float | None:
    if value in ("true", "false"):
        return _BLOOM if value == "true" else None
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not _LEAST_RATE <= rate < 1:
        raise InvalidInputError(
            f"Cannot use property {name!r} of table {table.name!r} with value {value!r}: it is no "
            "rate of a filter.",
            hint=f"Set it to 'true', 'false' or a share of false positives from {_LEAST_RATE:g} to 1, such "
            "as '0.01'.",
        )
    return rate


def _bytes(table: TableDefinition, name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and _LEAST_BYTES <= int(value) <= _MOST_BYTES):
        raise InvalidInputError(
            f"Cannot use property {name!r} of table {table.name!r} with value {value!r}: expected a "
            "number of bytes.",
            hint=f"Set it to a number from {_LEAST_BYTES} to {_MOST_BYTES}, such as '65536'.",
        )
    return int(value)
