"""What runs in the sandbox: a referee that makes inputs and compares results, and processes that run the code.

The referee runs nothing of the code under test, and trusts nothing that its processes send but their values: the clock
and the comparison are its own.
"""
