"""The pictures of the manual: `python -m tools.figures` (`make figures`) draws docs/figures.

Each module has a function or more without arguments that returns a picture as SVG. What a picture
says of sizes, offsets, bits and steps comes from the code that it is about.
"""
