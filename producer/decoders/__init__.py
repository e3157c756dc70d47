"""Row images to JSON: column formats, the source text of decoders generated from them, and the events made of it."""
