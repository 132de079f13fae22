"""Padding lengths that the users' own answers decide: the length question, the rules, the mechanism of both."""
