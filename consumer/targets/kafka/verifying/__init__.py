"""Topics as `verify` reads them: as their readers do, by what the records say, and not by what wrote them."""
