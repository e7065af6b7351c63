"""The engine: rules, stores and queues. It imports neither Airflow nor Spark.

`rules` decides, without I/O, clock or chance. `store` keeps what it decides, on SQLite and PostgreSQL. `queue` is what
users call: a session of a ring, and a collaborator for each capability.
"""
