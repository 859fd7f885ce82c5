"""Pages as bytes, and the way to them: page codec, page files, reads, caches.

Start at `pages.page_codec.encode_page` for writing and at `reading.page_handler.PageHandler` for reading. A
read goes through `reading.page_cache` (two tiers, and who is loading what), `reading.page_reader` (which
plans with `files.read_plan` and reads by `files.local_spans`, or by the store, with `reading.disk_cache` in
front), and `pages.page_codec`. Whole runs of numbers that are read once come by `reading.number_runs`, past
the caches. Pure are `pages`, `stats` and `files.read_plan`. Knows nothing of the log.
"""

from spark_pages.format.bounds import decode_bound
from spark_pages.format.pages.batch_encoder import encode_pages
from spark_pages.format.pages.codecs import Codec
from spark_pages.format.pages.ipc_layout import FlatColumn
from spark_pages.format.pages.lazy_page import PlainPage
from spark_pages.format.pages.page_batch import PageBlock
from spark_pages.format.pages.page_codec import EncodedPage, decode_page, encode_page
from spark_pages.format.pages.page_header import PageHeader, parse_header
from spark_pages.format.pages.paginate import plan_pages
from spark_pages.format.statistics import page_stats, stats_of_pages
from spark_pages.io.cache_config import CacheConfig
from spark_pages.io.file_writer import PageFileWriter
from spark_pages.io.page_handler import PageHandler
from spark_pages.io.read_counts import CacheStats, ReadCounts, ReadTrace

__all__ = [
    "CacheConfig",
    "CacheStats",
    "Codec",
    "EncodedPage",
    "FlatColumn",
    "PageBlock",
    "PageFileWriter",
    "PageHandler",
    "PageHeader",
    "PlainPage",
    "ReadCounts",
    "ReadTrace",
    "decode_bound",
    "decode_page",
    "encode_page",
    "encode_pages",
    "page_stats",
    "parse_header",
    "plan_pages",
    "stats_of_pages",
]
