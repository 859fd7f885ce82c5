"""Compacted ranges: the slots of an aligned power-of-two range in one object: many are few requests."""
