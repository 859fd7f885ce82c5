"""Pictures of stores: the log, chains, compactions, the requests and cache hits of reads.

Imports `store` and everything below. Start with `charts`: each function reads what it draws and returns a
`Picture`, whose `svg` is the document and which notebooks show. Drawing is in `spark_pages.display`.
`report.report_page` puts all pictures on one HTML page.
"""

from spark_pages.display.canvas import Picture
from spark_pages.pictures.charts import cache, chain, compaction, log, waterfall
from spark_pages.pictures.report import report_page

__all__ = ["Picture", "cache", "chain", "compaction", "log", "report_page", "waterfall"]
