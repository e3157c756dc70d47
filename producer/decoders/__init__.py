"""Converts row images to JSON: column formats, generated decoders, and the events built from them."""
