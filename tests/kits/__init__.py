"""What several test modules share: builders, drivers of parts of the product, judges, fixtures."""
