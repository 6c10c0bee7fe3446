"""`dlaunch top --metrics`: a job's numbers for Prometheus. Needs the extra `metrics` (prometheus_client)."""
