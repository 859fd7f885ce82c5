"""A write by Spark: planned and committed by the driver, carried out by tasks. No pyspark here.

`plan_write` looks at the catalog, `write_task` runs in executors, `commit_write` names in one commit all that
the tasks have written. A task with few rows sends them along instead of writing files: where all tasks do so
the commit is an ordinary small transaction. Whatever is repeated or fails before the commit leaves at most
files that nothing names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from spark_pages.arrow.compact import referenced_bytes
from spark_pages.catalog.resolve import find_table, split_name
from spark_pages.errors import SchemaMismatchError, TableNotFoundError
from spark_pages.format.features import check_writable
from spark_pages.format.values import is_convertible
from spark_pages.model.ids import TableId
from spark_pages.model.table import NAMESPACE_NAMES, TableDefinition, with_field_ids
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table_names import name_of_new, spelled
from spark_pages.runtime import Runtime
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.serialization import objects_of, store_of
from spark_pages.store import Store
from spark_pages.transaction.ingest import spelled_columns
from spark_pages.transaction.transaction import Transaction
from spark_pages.transaction.written_rows import WrittenRows, write_rows

FEW_BYTES = 64 << 10
"""A task that has no more than this sends its rows to the driver."""

_NEW = TableId(-1)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What a write is to do, decided before any task begins.

    Attributes
    ----------
    url
        Address of the store.
    definition
        The table; one that is still to be made has a negative id.
    read_version
        The version that it stands on.
    overwrite
        Whether the rows that are there go.
    options
        How rows are to be written.
    inherited
        Properties of the table's namespace.
    landed
        Version by which the log holds this pair already, so that nothing is to be done; else None.
    """

    url: str
    definition: TableDefinition
    read_version: int
    overwrite: bool
    options: WriteOptions
    inherited: Mapping[str, str] = field(default_factory=dict)
    landed: int | None = None

    @property
    def is_applied(self) -> bool:
        """Whether nothing is to be done."""
        return self.landed is not None

    @property
    def creates(self) -> bool:
        """Whether the table is made by this write."""
        return self.definition.table_id == _NEW


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What a task tells the driver.

    Attributes
    ----------
    partition
        Its number: the rows of partition 0 come first.
    plan
        What it was given: a stream plans anew for its commit, and must use this one.
    rows
        Few rows as an Arrow stream, or where more have been written; None where there are none.
    """

    partition: int
    plan: WritePlan
    rows: bytes | WrittenRows | None


def plan_write(url: str, schema: pa.Schema, overwrite: bool, options: WriteOptions) -> WritePlan:
    """Plan a write of rows of this schema.

    Parameters
    ----------
    schema
        Of the rows, in Spark's types.
    overwrite
        Whether the rows that are there go.

    Raises
    ------
    TableNotFoundError
        If there is no such table, and it is not to be made.
    NamespaceNotFoundError, InvalidInputError
        If it is to be made, and cannot be.
    SchemaMismatchError
        If the rows cannot be of this table; names the first column that does not fit.
    UnsupportedFormatError
        If the store asks its writers to know what this release does not.
    """
    store = store_of(url)
    snapshot = store.snapshot()
    check_writable(snapshot.log.state.features)  # before tasks write page files
    table = name_of_new(snapshot, spelled(snapshot, options.table.split(".")).split("."))
    options = replace(options, table=table)
    definition = _definition(store, snapshot, schema, options)
    check_fits(definition, schema)
    app_id, app_version = options.app_id, options.app_version
    numbered = app_id is not None and app_version is not None
    landed = store.transaction(app_id=app_id, app_version=app_version).applied_version() if numbered else None
    namespace = snapshot.log.table((NAMESPACE_NAMES, split_name(options.table)[0]))
    inherited = dict(namespace.properties) if namespace is not None else {}
    return WritePlan(url, definition, snapshot.version, overwrite, options, inherited, landed)


def _definition(
    store: Store, snapshot: Snapshot, schema: pa.Schema, options: WriteOptions
) -> TableDefinition:
    try:
        return find_table(snapshot.log, options.table)
    except TableNotFoundError as error:
        if options.create:
            staged = store.transaction(read_version=snapshot.version)
            staged.create_table(options.table, schema, properties=options.properties)  # refused now or never
            staged.rollback()
            fields = with_field_ids(schema)
            return TableDefinition(
                _NEW, options.table, fields, len(schema) + 1, properties=dict(options.properties)
            )
        raise TableNotFoundError(
            error.message,
            hint=f"{error.hint or ''} Option createTable=true makes it, --create of ingest too.".strip(),
            **error.context,
        ) from None


def check_fits(definition: TableDefinition, schema: pa.Schema) -> None:
    """Nothing, if rows of this schema may be put into the table; values are looked at when they come.

    Raises
    ------
    SchemaMismatchError
    """
    wanted = definition.bare_schema
    named = spelled_columns(definition, schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(schema, named, strict=True)])
    unknown = [name for name in schema.names if name not in wanted.names]
    if unknown:
        raise SchemaMismatchError(
            f"Cannot write to {definition.name!r}: it has no column {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(wanted.names)}.",
            hint="Leave those columns out by `select(…)`, or add them: `transaction.add_column`.",
        )
    for column in wanted:
        if column.name not in schema.names:
            if not column.nullable:
                raise SchemaMismatchError(
                    f"Cannot write to {definition.name!r}: column {column.name!r} is missing, and it is not "
                    f"nullable.",
                    hint=f"Add the column {column.name!r} to the frame: `withColumn({column.name!r}, …)`.",
                )
            continue
        given = schema.field(column.name).type
        if not is_convertible(given, column.type):
            raise SchemaMismatchError(
                f"Cannot write to {definition.name!r}: column {column.name!r} holds {column.type}, "
                f"and the rows to write have {given}.",
                hint=f"Cast it in the frame: `withColumn({column.name!r}, col({column.name!r}).cast(…))`.",
            )


def write_task(plan: WritePlan, partition: int, batches: Iterator[pa.RecordBatch]) -> TaskRows:
    """Write the rows of one task, or return them if they are few.

    Raises
    ------
    SchemaMismatchError, ConstraintError
        If values do not fit their column or a constraint of the table.

    Notes
    -----
    Memory of about 128 MiB beside one batch, whatever the task has.
    """
    if plan.is_applied:
        return TaskRows(partition, plan, None)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            held_bytes += referenced_bytes(batch)
        if held_bytes > FEW_BYTES:
            break
    if not held:
        return TaskRows(partition, plan, None)
    if held_bytes <= FEW_BYTES:
        return TaskRows(partition, plan, _packed(held))
    stream = pa.RecordBatchReader.from_batches(held[0].schema, chain(held, batches))
    return TaskRows(partition, plan, _written(plan, stream))


def commit_write(tasks: Iterable[TaskRows | None], plan: WritePlan | None = None) -> int | None:
    """All rows are in the table, by one commit; gives its version, or where it landed before.

    Parameters
    ----------
    tasks
        What the tasks told, each partition once.
    plan
        What to do where there was no task at all.

    Returns
    -------
    int or None
        None where there is neither a task nor a plan.

    Raises
    ------
    CommitConflictError
        If the table was changed meanwhile in a way that does not go together; nothing was committed.
    ConstraintError
        If a primary key would be there twice; names it. Nothing was committed.
    CommitUnknownError
        If the outcome could not be found out.
    """
    told = sorted((task for task in tasks if task is not None), key=lambda task: task.partition)
    plan = told[0].plan if told else plan
    if plan is None or plan.is_applied:
        return None if plan is None else plan.landed
    rows = [task.rows for task in told if task.rows is not None]
    written = any(isinstance(each, WrittenRows) for each in rows)
    store, options = store_of(plan.url), plan.options
    txn = store.transaction(
        options.operation,
        options.app_id,
        options.app_version,
        parameters={
            "table": options.table,
            "engine": options.engine,
            "mode": "overwrite" if plan.overwrite else "append",
        },
        read_version=plan.read_version if written or plan.overwrite or plan.creates else None,
    )
    with store, txn:
        if plan.creates:
            schema, properties = plan.definition.bare_schema, plan.definition.properties
            txn.create_table(options.table, schema, properties=properties)
        elif plan.overwrite:
            txn.truncate_table(options.table)
        if written:
            txn.append_written(options.table, list(_all_written(plan, rows)))
        else:
            _append(txn, options.table, rows)
    return txn.version


def _append(txn: Transaction, table: str, rows: Sequence[bytes | WrittenRows]) -> None:
    few = [each for each in rows if isinstance(each, bytes)]
    if few:
        txn.append(table, _unpacked(few))


def _all_written(plan: WritePlan, rows: Sequence[bytes | WrittenRows]) -> Iterator[WrittenRows]:
    """Rows in order; few ones that stand between written ones are written now, neighbours together."""
    waiting: list[bytes] = []
    for each in (*rows, None):
        if isinstance(each, bytes):
            waiting.append(each)
            continue
        if waiting:
            yield _written(plan, _unpacked(waiting))
            waiting = []
        if each is not None:
            yield each


def _written(plan: WritePlan, data: object) -> WrittenRows:
    objects = objects_of(plan.url)
    return write_rows(objects, Runtime(), plan.definition, plan.read_version, data, plan.inherited)


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _unpacked(streams: Sequence[bytes]) -> pa.Table:
    return pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in streams])
