"""The Celery application: runs the jobs that deliveries and commands request."""
