"""Services are killed with all that they started once whoever started them is gone."""
