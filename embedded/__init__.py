"""The whole service in one process, for a small team: web application, worker and scheduler, on SQLite."""
