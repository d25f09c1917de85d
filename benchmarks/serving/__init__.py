"""How much of a model server's capacity the client can use."""
