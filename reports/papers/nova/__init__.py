"""The figures and tables of the Nova paper."""
