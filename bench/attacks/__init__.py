"""Attacks on what locality stores, downloads and reads; `bench/attack_test.py` runs and counts them."""
