"""How fast the decoder is: against the memory, against peers, and by size."""
