"""Pages on storage: page files, aligned reads, caches.

Imports `format`, `model` and `storage`, never `log`. Start with `page_handler`, which serves pages by
descriptor through two caches in memory (`page_cache`) and one on disk (`disk_cache`); `page_reader` reads
the pages that no cache holds, in the requests that `read_plan` chooses; `file_writer` writes page files.
"""

from spark_pages.format.bounds import decode_bound
from spark_pages.format.pages.batch_encoder import encode_pages
from spark_pages.format.pages.codecs import Codec
from spark_pages.format.pages.ipc_layout import FlatColumn
from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.format.pages.page_batch import PageBatch
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
    "LazyPage",
    "PageBatch",
    "PageFileWriter",
    "PageHandler",
    "PageHeader",
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
