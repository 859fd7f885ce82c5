"""Object storage: the only boundary through which spark_pages reads and writes bytes.

Imports the foundations. Start with `store`, the protocol and the meaning of its answers; `local` and
`remote` implement it, `factory` opens a store by its URL, `instrumented` counts and times requests.
Import names from this package, not from its modules.
"""

from spark_pages.storage.checks import MAX_KEY_CHARS, check_key
from spark_pages.storage.factory import open_object_store
from spark_pages.storage.instrumented import MeteredStore, RequestCounts, TimedRequest, TimedStore
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.remote import RemoteStore
from spark_pages.storage.store import (
    Created,
    CreateOutcome,
    Doubtful,
    Exists,
    NotCreated,
    ObjectInfo,
    ObjectStore,
)

__all__ = [
    "MAX_KEY_CHARS",
    "CreateOutcome",
    "Created",
    "Doubtful",
    "DurableLocalStore",
    "Exists",
    "MeteredStore",
    "NotCreated",
    "ObjectInfo",
    "ObjectStore",
    "RemoteStore",
    "RequestCounts",
    "TimedRequest",
    "TimedStore",
    "check_key",
    "open_object_store",
]
