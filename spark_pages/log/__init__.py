"""The log: commits by put-if-absent, replay, checkpoints, snapshots.

Imports `model`, `storage`, `errors` and `runtime`; never `io`. Pure modules: `commit_codec`,
`replay`, `conflict`, `tree`. Follow a commit from `log.Log.commit` through `commit_protocol`;
follow a read from `log.Log.snapshot` through `head` and `replay` to `checkpoint`.
"""
