"""The log: commits by put-if-absent, replay, checkpoints, snapshots.

Follow a commit from `log.Log.commit` through `commit.group` and `commit.driver` to `commit.protocol`; follow
a read from `log.Log.snapshot` through `head` and `replay` to `checkpoint.reader`. Pure are `replay`,
`retention`, and of the rooms `encoding`, the conflict rules and the tree of a checkpoint. Never imports `io`.
"""
