"""Replays: an experiment becomes points (`expand`), each replayed in a fresh process (`worker`), here or on other
machines (`executors`)."""
