"""Blocks on a real YARN, with their messages in a real HDFS, and what a cluster and its operators do to them."""
