"""What real servers did, read from the files that they and their clients left."""
