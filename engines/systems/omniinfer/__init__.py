"""OmniInfer (arXiv 2511.22481): expert placement, sink-and-recent attention in some layers, a proxy in front."""
