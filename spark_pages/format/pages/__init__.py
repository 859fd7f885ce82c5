"""The page format: encoding and decoding of pages, one at a time or in batches.

Pure. Start with `page_codec` (one page) and `batch_codec` (pages of the same shape); `page_header` describes
the 64 bytes in front of the payload, `integer_encoding` the two integer encodings, `paginate` where a column
is split.
"""
