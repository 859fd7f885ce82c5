"""Text, HTML and SVG of plain values, for notebooks, terminals and reports.

Pure. Imports nothing above the foundations, so that every package may show its values. `markup` makes all
HTML and escapes every name; pictures are drawn on a `canvas`, one module for each picture; `cards` draws
stores, snapshots and tables from plain values. A picture has no script, style sheet, font or reference, and
stays small however large its input is.
"""
