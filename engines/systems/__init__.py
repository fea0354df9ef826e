"""The systems that can be measured, one folder each."""
