"""The log: commits by put-if-absent, replay, checkpoints, retention.

Imports `format`, `model` and `storage`, never `io`. Follow a commit from `log.Log.commit` through
`commit.group` and `commit.driver` to `commit.protocol`; follow a read from `log.Log.snapshot` through
`discovery` and `replay` to `checkpoint.reader`. Pure are `replay`, `retention`, `state`, and in `commit` the
protocol and the conflict rules.
"""
