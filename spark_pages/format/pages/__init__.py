"""The page format: pages as bytes and back, one by one or many at a time. Start at `page_codec`."""
