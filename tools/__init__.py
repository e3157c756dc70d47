"""Programs for developers of rowlock; not part of the product."""
