"""The metadata service (seed 004): one process keeps the metadata of a store current for many readers.

Imports `store` and everything below. Start with `metadata`, the service without a network, and `table_view`,
which builds snapshots from its responses. `flight_server` serves Arrow Flight, `remote_store` is the client
that `spark_pages.connect` returns. Only a server needs PyJWT and prometheus-client (extra ``[service]``).
"""
