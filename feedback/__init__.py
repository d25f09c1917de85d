"""What we said, what people did with it, and what we conclude. Also the one database that the services share."""
