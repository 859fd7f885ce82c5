"""`spark-pages doctor`: whether this machine and that storage can be trusted with a store.

Start at `examination.py`. `races.py` races creators, `storage.py` asks the rest of the storage, `machine.py`
looks at this machine; `probe.py` is what other processes run. May import everything but `cli`.
"""
