"""Stand-ins: what plays the other side of a seam of the product without the real thing."""
