"""What a plan must cost at least: bytes, operations and launches."""
