"""Cards: named experiments that come with their figures."""
