"""What each training switch is worth: the product's recipe against the naive one."""
