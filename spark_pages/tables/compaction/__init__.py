"""Page compaction: `plan` says which pages gain, `compact` rewrites them, chain by chain, under a claim."""
