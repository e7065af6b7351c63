"""Blocks: plan, report, settle, release."""
