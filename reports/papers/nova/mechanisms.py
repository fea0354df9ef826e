"""The mechanisms that the paper names."""

from reports.claims.mechanism import Mechanism

MECHANISMS: tuple[Mechanism, ...] = ()
