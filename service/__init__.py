"""What the web application and the workers share: settings, the database, jobs and their leases, logs, credentials."""
