"""How large and how tangled the code is, room by room, and that it grows no worse."""
