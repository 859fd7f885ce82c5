"""From rows to values: which pages, read how, put together as what. Start at `row_source`."""
