"""Whether rewrites that are right are proved, and wrong ones are not."""
