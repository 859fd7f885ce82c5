"""Every byte that is stored, and its validation: `docs/format.md` as code.

Pure. Imports `model`, `arrow` and the foundations; no module here reads or writes storage. `pages` holds the
page format, `statistics`, `bounds` and `bloom` describe values, `commit` and `container` the slots of the
log, `segment`, `parquet` and `checkpoint_tree` the objects of a checkpoint, `names` the keys of objects.
"""
