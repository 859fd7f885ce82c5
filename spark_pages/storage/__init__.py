"""Object storage: the one boundary through which spark_pages reads and writes bytes.

Start with `store.py`, the protocol and what its answers promise; `local.py` and `remote.py` keep them.
Import from this module only; `open_object_store` turns an address into a store. Nothing here knows what
the bytes mean.
"""

from spark_pages.storage.factory import open_object_store
from spark_pages.storage.keys import MAX_KEY_CHARS, check_key
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.metered import MeteredStore, RequestCounts
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
from spark_pages.storage.timed import TimedRequest, TimedStore

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
