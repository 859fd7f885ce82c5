"""Pages by descriptor: caches, reads, and what is counted of them. Start at `page_handler`."""
