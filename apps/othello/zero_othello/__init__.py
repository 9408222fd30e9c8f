"""Othello AlphaZero."""
