"""Everything that speaks GitHub: the client, authentication, reading a pull request, posting a review.

Each module that needs GitHub declares the few methods it uses as a protocol; `client.GitHubClient` has them all.
"""
