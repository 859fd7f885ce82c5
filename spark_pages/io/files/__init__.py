"""Page files, and how to read them: which requests, past the page cache of the kernel, many in flight."""
