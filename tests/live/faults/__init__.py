"""Faults of a real Airflow and a real Spark at each point of a block."""
