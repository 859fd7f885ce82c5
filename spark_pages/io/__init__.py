"""Pages as bytes, and the way to them: page codec, page files, aligned reads, two cache tiers.

Pure are `codecs`, `page_codec`, `statistics` and `paginate`; `page_file`, `direct`, `page_reader` and
`page_handler` touch storage. Imports nothing of this project but `errors`, `model` and `storage`.
Start at `page_codec.encode_page` for writing and at `page_handler.PageHandler` for reading.
"""

from spark_pages.io.codecs import Codec
from spark_pages.io.page_cache import ByteBudgetCache, CacheCounts
from spark_pages.io.page_codec import EncodedPage, PageHeader, decode_page, encode_page, parse_header
from spark_pages.io.page_file import PageFileWriter
from spark_pages.io.page_handler import PageHandler
from spark_pages.io.page_reader import PageReader
from spark_pages.io.paginate import plan_pages
from spark_pages.io.read_counts import CacheStats, ReadCounts, ReadTrace
from spark_pages.io.statistics import decode_bound, page_stats, stats_of_pages

__all__ = [
    "ByteBudgetCache",
    "CacheCounts",
    "CacheStats",
    "Codec",
    "EncodedPage",
    "PageFileWriter",
    "PageHandler",
    "PageHeader",
    "PageReader",
    "ReadCounts",
    "ReadTrace",
    "decode_bound",
    "decode_page",
    "encode_page",
    "page_stats",
    "parse_header",
    "plan_pages",
    "stats_of_pages",
]
