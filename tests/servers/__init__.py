"""Real servers in unusual states, and networks that fail between them and the product."""
