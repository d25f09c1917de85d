"""Runs the code that a fix replaces and the fix itself on generated inputs: the same results, and in less time.

Nothing of the code is run in this process: it is judged by its syntax tree, and then sent to a sandbox (`sandbox.py`)
in which `inside/` runs it.
"""
