"""What voice agents built of services write of their own latencies: the user's gap in parts that sum."""
