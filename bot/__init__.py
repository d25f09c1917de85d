"""The webhook application: deliveries in, jobs out; and the slash commands."""
