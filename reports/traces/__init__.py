"""Traces as pictures: a function per picture, a page that holds them, fitted generators beside real data."""
