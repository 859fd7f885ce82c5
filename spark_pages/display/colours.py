"""Colours that hold on white and on black, and that nobody has to see the way most people do."""

from __future__ import annotations

INK = "#767f8c"
"""Text and thin lines: a contrast of 4.0 to white and of 4.7 to the near-black of dark notebooks."""

BLUE, ORANGE, GREEN = "#2b83c6", "#e69f00", "#009e73"
PURPLE, SKY, RED = "#cc79a7", "#56b4e9", "#d55e00"
"""Okabe and Ito's colours, told apart in all common kinds of colour blindness; the blue is a little lighter
than theirs, for dark pages."""

SERIES = (BLUE, ORANGE, GREEN, SKY, RED, PURPLE)
"""For things in a row: each differs much from its neighbours, in brightness too."""

FAINT = 0.18
"""Opacity of grounds and grids."""
