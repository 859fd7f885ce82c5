"""What callers give as rows and values, as Arrow of the right type, and arrays made out of arrays."""
