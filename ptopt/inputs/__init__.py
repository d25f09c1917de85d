"""Where changes come from: git, a patch with a tree, or files and folders on disk."""

from ptopt.inputs.changes import change_between, change_from_patch, change_of_commit, neighbours_in, with_head
from ptopt.inputs.commits import files_of_commit, naming_in_commit
from ptopt.inputs.folders import change_from_paths, file_from_bytes, named_files, project_files
from ptopt.inputs.git import DIFF, CheckoutError, default_base, repository_root
from ptopt.inputs.heads import MAX_FILE, MAX_PROJECT_FILE, together_too_large

__all__ = [
    "DIFF",
    "MAX_FILE",
    "MAX_PROJECT_FILE",
    "CheckoutError",
    "change_between",
    "change_from_patch",
    "change_from_paths",
    "change_of_commit",
    "default_base",
    "file_from_bytes",
    "files_of_commit",
    "named_files",
    "naming_in_commit",
    "neighbours_in",
    "project_files",
    "repository_root",
    "together_too_large",
    "with_head",
]
