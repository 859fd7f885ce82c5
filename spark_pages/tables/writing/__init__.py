"""From Arrow columns to pages and page files: rows are cut by `ingest` and become pages in `page_writer`."""
