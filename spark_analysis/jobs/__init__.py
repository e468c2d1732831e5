"""What is run over histories."""
