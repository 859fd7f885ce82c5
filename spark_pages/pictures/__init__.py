"""Pictures of stores, for notebooks and pages: what the log, the chains, the caches and the requests did.

Each function reads what it shows and gives a `Picture`, which notebooks show as it is; `picture.svg` is the
document. Reading is done here, drawing in `spark_pages.display`. `report_page` puts all of them on one page.
"""

from spark_pages.display.canvas import Picture
from spark_pages.pictures.caches import cache
from spark_pages.pictures.chains import chain, compaction
from spark_pages.pictures.history import log
from spark_pages.pictures.report import report_page
from spark_pages.pictures.requests import waterfall

__all__ = ["Picture", "cache", "chain", "compaction", "log", "report_page", "waterfall"]
