"""Spark jobs of tasks: submission, Spark Connect clients, masters, and what a job's output reports."""

from __future__ import annotations
