"""Pages as bytes, and the way to them: page codec, page files, reads, caches.

Start at `page_codec.encode_page` for writing and at `page_handler.PageHandler` for reading. A read goes
through `page_cache` (two tiers, and who is loading what), `page_reader` (which plans with `read_plan` and
reads by `local_spans`, or by the store, with `disk_cache` in front), and `page_codec`. Whole runs of numbers
that are read once come by `number_runs`, past the caches.
Pure are the codecs, `narrow`, `statistics`, `bloom`, `paginate` and `read_plan`. Imports nothing of this
project but `errors`, `model` and `storage`.
"""

from spark_pages.io.block_encoder import encode_pages
from spark_pages.io.bounds import decode_bound
from spark_pages.io.cache_config import CacheConfig
from spark_pages.io.codecs import Codec
from spark_pages.io.page_block import PageBlock
from spark_pages.io.page_codec import EncodedPage, decode_page, encode_page
from spark_pages.io.page_file import PageFileWriter
from spark_pages.io.page_handler import PageHandler
from spark_pages.io.page_header import PageHeader, parse_header
from spark_pages.io.paginate import plan_pages
from spark_pages.io.plain_page import PlainPage
from spark_pages.io.read_counts import CacheStats, ReadCounts, ReadTrace
from spark_pages.io.statistics import page_stats, stats_of_pages
from spark_pages.io.stream_shape import FlatColumn

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
