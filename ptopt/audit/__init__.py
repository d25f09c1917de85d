"""The audit of a repository: which scripts train, what each of them uses, what is missing, what to do first.

Pure: files in, values out. `audit.py` is the whole of it on one page.
"""
