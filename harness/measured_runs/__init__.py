"""Records of real servers, read from the files that they and their clients left."""
