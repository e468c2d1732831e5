"""An unbounded, named log over ledgers."""
