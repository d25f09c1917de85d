"""What each rule is worth: the code before the advice against the code after it."""
