"""What Homing is tried with: `bench` measures it, `chaos` breaks it and judges what was seen. No part of a node."""
