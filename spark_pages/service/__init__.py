"""The service (seed 004): one process keeps the metadata of a store current for many readers.

Start with `metadata.py`, the service without a network, and with `table_view.py`, which builds from its
answers the snapshot that storage would give. `flight_server.py` puts Arrow Flight in front of it,
`served_store.py` is what `spark_pages.connect` gives. PyJWT and prometheus-client are needed by whoever
serves (extra ``[service]``), not by readers.
"""
