"""Is what the rules say of libraries true of the versions that people install?"""
