"""What things look like in a notebook or on a page: plain values in, markup out. Pure.

HTML is made by `markup.py` and nothing else, so that every name is escaped in one place; pictures are drawn
on a `canvas.py`, one module for each picture. Start with `chain_strip.py`. Drawn for code hosts: no script,
no style sheet, no font, no reference, colours that can be told apart on white and on black and by people
who see colours differently. However large the input, a picture is small.

Imports nothing of this project, so that everything else may show itself by it; `spark_pages.pictures`
brings stores and these pictures together.
"""
