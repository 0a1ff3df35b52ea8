"""Decisions that provably cannot change within a radius: certificates and the networks that give them."""
