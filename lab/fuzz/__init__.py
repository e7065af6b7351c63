"""Fuzzing by coverage: a target for each reader of foreign bytes, kept corpora, and their replay.

`python -m lab.fuzz` mutates inputs with atheris and keeps those that reach new code. `test_corpus.py` replays the
kept inputs, and needs no atheris.
"""
