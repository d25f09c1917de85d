"""The Celery application: carries out the jobs that deliveries and commands ask for."""
